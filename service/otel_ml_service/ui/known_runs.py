"""The runs of a folder, each read when somebody asks for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from otel_ml.exceptions import OtelMLError
from otel_ml.flatten import leaves
from otel_ml.redaction import redacted_values
from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml.wire.published_name import is_own
from otel_ml_service.findings.units import measured
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import last_value
from otel_ml_service.report.markup import written_out
from otel_ml_service.stored_runs.failure import failure_lines
from otel_ml_service.stored_runs.run_folders import RunFolder, run_folders
from otel_ml_service.ui.followed_run import FollowedRun

__all__ = ["KnownRuns"]

_RUNS = 500
"""Newest runs of a list."""
_OPEN = 8
"""Runs whose values are kept between questions: those asked for last."""
_TIMEOUT_S = 0.8
"""A list answers after so long, with what has been read; the next one has more."""
_VALUES, _PARAMS, _LETTERS = 6, 8, 60
"""Of a row: values and parameters, and letters of one."""


class KnownRuns:
    """Finds runs by `experiment/id`. Safe to use from several threads."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._lock = threading.Lock()
        self._followed: dict[str, FollowedRun] = {}
        self._rows: dict[str, tuple[float, dict[str, Any]]] = {}
        self._changed = threading.Condition()
        self._to_read: SimpleQueue[RunFolder] = SimpleQueue()
        self._queued: set[str] = set()
        threading.Thread(target=self._read_all, name="otel-ml-ui-runs", daemon=True).start()

    def find(self, name: str) -> FollowedRun | None:
        """Return the run `experiment/id`; None where there is none of that name."""
        with self._lock:
            # Taken out and put in again, so that the run that nobody asks for is the first one.
            known = self._followed.pop(name, None)
            if known is None or not known.folder.is_run():  # also one that was deleted, and perhaps is there again
                folders = {_name(folder): folder for folder in run_folders(self.base)}
                known = FollowedRun(folders[name]) if name in folders else None
            if known is not None:
                self._followed[name] = known  # the newest is last
            while len(self._followed) > _OPEN:
                self._followed.pop(next(iter(self._followed)))
            return known

    def rows(self) -> tuple[list[dict[str, Any]], int]:
        """Return a row for each of the newest runs, the newest first, and how many older ones there are.

        Of runs that are not read yet there are only name and time.
        """
        every = run_folders(self.base)
        folders = every[:_RUNS]
        with self._changed:
            for folder in folders:
                name = _name(folder)
                if name not in self._queued and self._rows.get(name, (-1.0,))[0] != folder.modified:
                    self._queued.add(name)
                    self._to_read.put(folder)
            # For all that is to be read, also for others who ask: then a list is whole in the usual, short case.
            self._changed.wait_for(lambda: not self._queued, timeout=_TIMEOUT_S)
            return [self._row(folder) for folder in folders], len(every) - len(folders)

    def _row(self, folder: RunFolder) -> dict[str, Any]:
        name = _name(folder)
        read = self._rows[name][1] if name in self._rows else {}
        return {"name": name, "run": folder.id, "experiment": folder.experiment, "modified": folder.modified, **read}

    def _read_all(self) -> None:
        """Read one run after the other, for as long as the program lives."""
        while True:
            folder = self._to_read.get()
            name = _name(folder)
            modified = RunFolder(folder.path).modified  # as it is now: what comes later is read again
            row = self._read(folder, name)
            with self._changed:
                self._rows[name] = modified, row
                self._queued.discard(name)
                self._changed.notify_all()

    def _read(self, folder: RunFolder, name: str) -> dict[str, Any]:
        with self._lock:
            followed = self._followed.get(name)
        followed = followed or FollowedRun(folder)
        try:
            with followed.held() as held:  # whoever has its page open lets it read on meanwhile
                row = {"called": folder.name, **_summary(held.contents, is_live=held.is_live)}
        except OtelMLError as error:
            return {"state": "unreadable", "said": str(error)}
        except Exception as error:  # noqa: BLE001 # one run that cannot be read must not end the list
            return {"state": "unreadable", "said": repr(error)}
        if held.is_live:
            with self._lock:
                # A run that goes on is read further the next time; of one that is over the row is all that is needed.
                self._followed.setdefault(name, followed)
        return row


def _name(folder: RunFolder) -> str:
    """Return the name by which a page asks for a run: written out, because that is how the page was given it."""
    return written_out(f"{folder.experiment}/{folder.id}")


def _summary(run: Contents, *, is_live: bool) -> dict[str, Any]:
    steps = [max(done) for (_, axis), done in run.steps.items() if axis == DEFAULT_AXIS and done]
    return {
        "state": "live" if is_live else run.history.status,
        "said": next(iter(failure_lines(run.history.failures)), ""),
        "step": max(steps, default=None),
        "params": _params(run),
        "values": _values(run),
    }


def _params(run: Contents) -> dict[str, str]:
    hidden: Mapping[str, Any] = redacted_values(run.history.params)
    shown = ((name, value) for name, value in leaves(hidden) if not is_own(name) and not name.startswith("otel_ml."))
    return {name: _shortened(str(value)) for name, value in list(shown)[:_PARAMS]}


def _shortened(shown: str) -> str:
    return shown if len(shown) <= _LETTERS else f"{shown[: _LETTERS - 1]}…"


def _values(run: Contents) -> dict[str, str]:
    finals = {name: value for name, value in run.history.summary.items() if not is_own(name)}
    names = [key for key in run.history.series if not is_own(key.name) and "time/" not in key.name]
    for key in sorted(names, key=lambda key: (key.axis != DEFAULT_AXIS, key.name.count("/"), key.name)):
        # Final values come first, and the last values of series fill up what room there is.
        if len(finals) >= _VALUES:
            break
        if key.name not in finals:
            finals[key.name] = last_value(run.history.series[key])
    return {name: measured(name, value) for name, value in list(finals.items())[:_VALUES]}

"""The one run of this process, which all open logger contexts share."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml.config import Config
from otel_ml.integrations.implicit_steps import Rows, rows_of
from otel_ml.warn_once import reporter

__all__ = ["SESSION", "Joined"]


@dataclass(frozen=True)
class Joined:
    """What a context records into.

    Attributes:
        prefix: before every name: the run's name, where it is nested in one that this process is in already.
        rows: of the run, for what is logged without a step.
    """

    run: otel_ml.Run
    prefix: str | None
    rows: Rows

    def named(self, identifier: str) -> str:
        """Return the name under which something is recorded."""
        return f"{self.prefix}/{identifier}" if self.prefix else identifier


class Session:
    """Begins the run for the first context, and ends it after the last; a run that was there before is left alone."""

    def __init__(self) -> None:
        self._open = 0
        self._run: otel_ml.Run | None = None  # that we began
        self._exporters: frozenset[str] = frozenset()
        self._variables = RunEnvironment()

    def join(
        self,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        run_id: str | None,
        parent_run_id: str | None,
    ) -> Joined:
        """Enter the run of `run_id` or `parent_run_id`, the one that is active, or a new one.

        A nested run is a part of its parent's: a role of its own in a process of its own, else a prefix.
        """
        if self._run is not None and not self._run.is_active:  # ended by otel_ml.shutdown(): its contexts are gone
            self._open, self._run = 0, None
            self._variables.undo()
        nested = (arguments.get("name") or "nested") if parent_run_id else None
        if RUNTIME.is_chosen:
            run = otel_ml.init()
            self._say_what_is_not_done(run, arguments, run_id or parent_run_id)
            prefix = nested
        else:
            self._variables.set(environment)
            own = _of_its_own(arguments, run_id, parent_run_id, nested)
            self._run = run = otel_ml.init(**own)
            self._exporters = frozenset(own["exporters"])
            prefix = None
        self._open += 1
        if nested:
            otel_ml.log_params({"parent_run_id": parent_run_id}, prefix=nested)
        return Joined(run, prefix, rows_of(run.id))

    def leave(self) -> None:
        """Leave the run; the last one to leave ends it."""
        self._open = max(0, self._open - 1)
        if self._open == 0 and self._run is not None:
            run, self._run = self._run, None
            run.__exit__(*sys.exc_info())  # a context that an exception leaves is a run that failed
            self._variables.undo()

    def _say_what_is_not_done(self, run: otel_ml.Run, arguments: Mapping[str, Any], wanted: str | None) -> None:
        if wanted not in (None, run.id):
            reporter.say(
                "itwinai-other-run",
                f"Run {wanted!r} was asked for while run {run.id!r} is active in this process: it records into the "
                "active one. Expected one run per process; destroy the first context before, or use a process.",
            )
        missing = set(arguments.get("exporters") or ()) - self._exporters
        if self._run is not None and missing:
            reporter.say(
                "itwinai-exporter",
                f"A logger for {', '.join(sorted(missing))} was added to a run that has begun without it. Expected "
                "all loggers of a run together: put them into one LoggersCollection.",
            )


def _of_its_own(
    arguments: Mapping[str, Any], run_id: str | None, parent_run_id: str | None, nested: str | None
) -> dict[str, Any]:
    """Return the arguments of `init()` for a process that is in no run yet."""
    # Other backends may be added from outside, without a change to the program.
    exporters = dict.fromkeys((*(arguments.get("exporters") or ()), *Config.from_env().exporters))
    own = {**arguments, "id": run_id or parent_run_id, "exporters": tuple(exporters)}
    if nested:
        # The display name is the parent's; what the child is, is its role: `<role>/<name>` in the backend.
        own.update(name=None, role=nested)
    return own


SESSION = Session()
"""The session of this process."""

"""What `otel-ml recover` tells: what became of what a run left, and, while it takes its time, for what it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from otel_ml.config import Endpoint
from otel_ml.quantities import seconds
from otel_ml_service.stored_runs.recover import Recovered
from otel_ml_service.stored_runs.unfinished import Unfinished

__all__ = ["LEFT", "LOST", "Outcome", "Waits"]

LEFT, LOST = 1, 3
"""Exit codes: something is left to deliver, run it again; nothing is left, and some is lost. 2 is wrong usage."""

_NOTHING = Recovered(is_done=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of what a run left.

    Attributes:
        run: as it was found.
        result: `lost` where nothing is left and some of it is lost; `unfinished` where it was listed and no more.
        endpoint: where its spools are sent; None where it is finished in its folder.
        spools: how many were sent or taken in.
        done: what its service did, where one was started.
        problems: why something is left.
        notices: what was said meanwhile, such as of a damaged file.
    """

    run: Unfinished
    result: Literal["delivered", "lost", "left", "left_alone", "unfinished"]
    endpoint: Endpoint | None = None
    spools: int = 0
    done: Recovered = _NOTHING
    problems: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """Its part of the exit code."""
        return {"left": LEFT, "lost": LOST}.get(self.result, 0)

    def as_json(self, job_dir: str) -> dict[str, object]:
        """Return it as plain data; `job_dir` is the folder to which the run's job wrote."""
        about = {"id": self.run.id, "experiment": self.run.experiment, "dir": str(self.run.folder.path)}
        left = {"job_dir": job_dir, "spools": self.run.spools, "sent_to": sorted(set(self.run.sent_to.values()))}
        return {
            **about,
            **left,
            "result": self.result,
            "endpoint": None if self.endpoint is None else self.endpoint.shown,
            "spools_delivered": self.spools,
            "values": self.done.values,
            "delivered": self.done.delivered,
            "exporters": list(self.done.exporters),
            "lacking": list(self.done.lacking),
            "lost": dict(self.done.lost),
            "problems": list(self.problems),
            "notices": list(self.notices),
        }


_SLOW_S = 2.0
"""Seconds after which a person asks what takes so long, where nothing is wrong."""


class Waits:
    """Says once of each backend that it is waited for, at once where it fails.

    Args:
        timeout: seconds the run may take.
        show: prints a sentence.
        clock: seconds that only go forward.
    """

    def __init__(
        self, timeout: float, show: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show = show
        self._clock = clock
        self._began = clock()
        self._timeout = timeout
        self._said: set[tuple[str, bool]] = set()

    def look(self, account: Mapping[str, Any]) -> None:
        """Say what is new in the account of a run."""
        exporters: Mapping[str, Mapping[str, Any]] = account.get("exporters", {})
        behind = {name: found for name, found in exporters.items() if found["pending"]}
        for name, found in behind.items():
            self._wait_for(name, found["problem"] or "")
        # Every exporter has what is decided, and something is not decided yet.
        if not behind and account.get("pending"):
            self._wait_for("its last steps", "")

    def _wait_for(self, what: str, problem: str) -> None:
        waited = self._clock() - self._began
        # Once where it only takes long, and once more where it then fails.
        if (what, bool(problem)) in self._said or (not problem and waited < _SLOW_S):
            return
        self._said.add((what, bool(problem)))
        left = max(0.0, self._timeout - waited)
        self._show(f"waits for {what}, for at most {seconds(left)}{f': {problem}' if problem else ''}")

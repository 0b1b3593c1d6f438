"""What `otel-ml top` shows of a run: the newest state, made of its records as they come; old values are not kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from otel_ml.wire.published_name import is_own
from otel_ml_exporters.backends.console.line import step_label
from otel_ml_exporters.backends.console.remark import Remarks
from otel_ml_exporters.records import Params, Record, RunStatus, StepRecord, Table
from otel_ml_exporters.run_progress import RunProgress
from otel_ml_exporters.telling_metrics import interesting
from otel_ml_service.cli.time_account import FINDINGS, finding_lines
from otel_ml_service.findings.whose_account import account_rank
from otel_ml_service.report.hardware import HostUse, hosts

__all__ = ["Progress", "RunBoard"]

RECENT = 48
"""Values of a metric in its small curve."""

_STEP, _PHASE, _EXPOSED, _MEAN = "time/step", "time/", "time/exposed/", "/mean"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        newest: the last row.
        fraction: of the run; None where it does not say how long it is.
        seconds_left: at the speed of the last steps; None where that is not known.
    """

    newest: StepRecord
    fraction: float | None
    seconds_left: float | None

    @property
    def place(self) -> str:
        """The newest step, in words."""
        return step_label(self.newest.role, self.newest.axis, self.newest.step)


@dataclass
class RunBoard:
    """Takes records in the order of `seq`.

    Attributes:
        recent: metric → its last values, oldest first; without otel_ml's own.
        finding: the newest one: who is or was slow, and where; else `remark` is shown.
        remark: the last thing that was special about a step: who was missing or took longest, and where.
        status: as the run's last record says.
    """

    recent: dict[str, deque[float]] = field(default_factory=dict)
    finding: str = ""
    remark: str = ""
    status: str = "running"
    _progress: RunProgress = field(default_factory=RunProgress)
    _remarks: Remarks = field(default_factory=Remarks)

    def add(self, record: Record) -> None:
        """Take one record."""
        # A correction is of an older step, and rows of otel_ml's own account come while no step does.
        if isinstance(record, StepRecord) and not record.amendment and not all(map(is_own, record.values)):
            self._add_step(record)
            self._progress.add(record)
        elif isinstance(record, Params):
            self._progress.add(record)
        # The names of other roles and axes have these in front: `generator/otel_ml/findings`. The slash keeps a user's
        # `my_otel_ml/findings` out.
        elif isinstance(record, Table) and f"/{record.name}".endswith(f"/{FINDINGS}"):
            self.finding = next(iter(finding_lines(record)), "")
        elif isinstance(record, RunStatus):
            self.status = record.status

    def _add_step(self, record: StepRecord) -> None:
        for name, value in record.values.items():
            if not is_own(name):
                self.recent.setdefault(name, deque(maxlen=RECENT)).append(value)
        if remarks := self._remarks.of(record):
            self.remark = f"{', '.join(remarks)} (at {step_label(record.role, record.axis, record.step)})"

    @property
    def progress(self) -> Progress | None:
        """How far the run is; None before its first step."""
        newest = self._progress.newest
        if newest is None:
            return None
        return Progress(newest, self._progress.fraction, self._progress.seconds_left)

    def metrics(self, most: int) -> Mapping[str, Sequence[float]]:
        """Return the last values of the `most` telling metrics."""
        return {name: self.recent[name] for name in interesting(self.recent)[:most]}

    @property
    def hosts(self) -> Mapping[str, HostUse]:
        """How busy each host was when it was last looked at, the least busy first; nothing where nobody looks."""
        return hosts({name: values[-1] for name, values in self.recent.items()})

    @property
    def phases_of(self) -> int | None:
        """Whose phases these are, where they take turns; None where they are of all ranks."""
        # Of `time/exposed/forward` and `time/exposed/forward/rank` the second says who was in front: name → `forward`.
        ends = {name: name.removeprefix(_EXPOSED) for name in self.recent if name.startswith(_EXPOSED)}
        ranks = {name: end.removesuffix("/rank") for name, end in ends.items() if end.endswith("/rank")}
        # One step, the newest, whose number says nothing here.
        return account_rank({phase: {0: self.recent[name][-1]} for name, phase in ranks.items()})

    @property
    def phases(self) -> Mapping[str, float]:
        """Timer → its share of the last step, the longest first; nothing where steps are not timed.

        Of several ranks, what each timer adds to the slowest rank's step; without that account, their means.
        """
        last = {name: values[-1] for name, values in self.recent.items() if name.startswith(_PHASE)}
        exposed = _below(_EXPOSED, last)
        if exposed:
            return _shares(exposed, sum(exposed.values()))
        means = {name.removesuffix(_MEAN): value for name, value in last.items() if name.endswith(_MEAN)}
        # A timer that is reduced by `max` first has its mean below `/mean`; one with a single reduction has the plain
        # name.
        found = means if _STEP in means else last
        timers = _below(_PHASE, {name: found[name] for name in interesting(found) if name != _STEP})
        return _shares(timers, found.get(_STEP, 0.0))


def _below(prefix: str, values: Mapping[str, float]) -> Mapping[str, float]:
    """Return what is directly below a prefix, without it."""
    names = {name: name.removeprefix(prefix) for name in values if name.startswith(prefix)}
    return {short: values[name] for name, short in names.items() if "/" not in short}


def _shares(timers: Mapping[str, float], step: float) -> Mapping[str, float]:
    shares = {name: seconds / step for name, seconds in timers.items()} if step > 0 else {}
    return dict(sorted(shares.items(), key=lambda entry: -entry[1]))

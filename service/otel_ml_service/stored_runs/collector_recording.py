"""Read what a Collector's file exporter recorded (OTLP/JSON, one message a line), and reduce it as a service does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from otel_ml.exceptions import OtelMLError
from otel_ml_exporters.records import Record
from otel_ml_service.aggregation.engine import Engine
from otel_ml_service.aggregation.observation import Observation
from otel_ml_service.aggregation.outcome import RunFacts
from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.receiver.decode import Decoder, Signal
from otel_ml_service.receiver.partial_success import UndecodableError
from otel_ml_service.stored_runs.extra_reductions import ExtraReductions

__all__ = ["NoRecordingError", "RecordedRun", "Recording", "is_recording", "read_recording"]

_EVER_S = 1e9
"""Nobody is waited for and nobody is given up: everything that was sent is in the file already."""

_KEYS: Mapping[bytes, Signal] = {b"resourceMetrics": "metrics", b"resourceLogs": "logs", b"resourceSpans": "traces"}


class NoRecordingError(OtelMLError):
    """A file that is not what the Collector's file exporter writes."""

    slug = "no-recording"


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One experiment in a recording: its records as a service would have committed them."""

    id: str
    facts: RunFacts
    records: Sequence[Record]
    notices: Sequence[str]


@dataclass(frozen=True, slots=True)
class Recording:
    """All experiments in a recording; `unreadable` lines were cut off or damaged."""

    runs: Sequence[RecordedRun]
    unreadable: int


@dataclass(slots=True)
class _Run:
    engine: Engine
    records: list[Record] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def take(self) -> None:
        outcome = self.engine.take()
        self.records += outcome.records
        self.notices += outcome.notices


def is_recording(path: Path) -> bool:
    """Whether `path` is a file of OTLP/JSON lines, and not a run."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        # No more of it: a file of another kind may be one line.
        return _signal_of(file.readline(256)) is not None


def read_recording(
    path: Path, extra: ExtraReductions, progress: Callable[[int], None] = lambda _bytes: None
) -> Recording:
    """Return what a service would have made of the recording, with no time-out: the order of its lines does not matter.

    Args:
        path: of the file.
        extra: reductions that nobody asked for when it was recorded.
        progress: called with the number of bytes of each line read.

    Raises:
        NoRecordingError: nothing in the file can be read.
        ConfigError: an extra reduction fits no metric, or cannot be told from what was sent.
    """
    settings = EngineSettings(
        allowed_lateness_s=_EVER_S, first_lateness_s=_EVER_S, world_wait_s=_EVER_S, end_silence_s=_EVER_S
    )
    # One time for all lines: no time-out of an engine passes while they are read.
    now = path.stat().st_mtime
    runs: dict[str, _Run] = {}
    unreadable = 0
    for observations in _requests(path, progress):
        if observations is None:
            unreadable += 1
            continue
        for experiment, found in observations.items():
            run = runs.get(experiment)
            if run is None:
                run = runs[experiment] = _Run(Engine(experiment, settings))
            for observation in found:
                for part in extra.applied(observation):
                    run.engine.observe(part, now)
            run.engine.advance(now)
            run.take()
    if not runs:
        raise NoRecordingError(
            f"{str(path)!r} holds no OTLP of any run. Expected what the Collector's file exporter writes with "
            "collector-config/record.yaml: one JSON message a line."
        )
    extra.check()
    return Recording([_ended(name, run, now) for name, run in runs.items()], unreadable)


def _ended(experiment: str, run: _Run, now: float) -> RecordedRun:
    # Beyond all of its time-outs: what is open closes, and the run ends.
    run.engine.advance(now + 10 * _EVER_S)
    run.take()
    return RecordedRun(experiment, run.engine.facts, run.records, run.notices)


def _requests(path: Path, progress: Callable[[int], None]) -> Iterator[Mapping[str, list[Observation]] | None]:
    decoder = Decoder()
    with path.open("rb") as file:
        for line in file:
            progress(len(line))
            if not line.strip():
                continue
            signal = _signal_of(line)
            try:
                yield None if signal is None else decoder.json(signal, line).observations
            except UndecodableError:
                yield None


def _signal_of(line: bytes) -> Signal | None:
    # A message has one key at its beginning, whose spaces are a matter of who wrote it.
    head = line[:64].replace(b" ", b"")
    return next((signal for key, signal in _KEYS.items() if head.startswith(b'{"' + key + b'"')), None)

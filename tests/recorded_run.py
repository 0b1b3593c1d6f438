"""A run on disk as the service leaves it, made with the service's own outbox and exporters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from otel_ml_exporters.records import Params, Record, RunInfo, RunStatus, StepRecord, Summary
from otel_ml_exporters.registry import exporter_class
from otel_ml_service.storage.outbox import Commit, Outbox
from otel_ml_service.stored_runs.run_folders import RunFolder

__all__ = ["digits_records", "export", "going_on", "write_run"]


def write_run(
    base: Path,
    run_id: str,
    records: Sequence[Record],
    *,
    experiment: str = "digits",
    exporters: Sequence[str] = ("jsonl",),
) -> RunFolder:
    """Write `records` as a finished run: into its database, and by each exporter into its backend."""
    with going_on(base, run_id, records, experiment=experiment, exporters=exporters) as run:
        return run


@contextmanager
def going_on(
    base: Path,
    run_id: str,
    records: Sequence[Record],
    *,
    experiment: str = "digits",
    exporters: Sequence[str] = ("jsonl",),
) -> Iterator[RunFolder]:
    """Write `records` as those of a run that goes on: until the block ends the database is open, as in a service."""
    run = RunFolder(base / experiment / run_id)
    outbox = Outbox(run.database)
    outbox.commit(Commit(records=records))
    for name in exporters:
        export(run, records, name)
    try:
        yield run
    finally:
        outbox.close()


def export(run: RunFolder, records: Sequence[Record], name: str = "jsonl") -> None:
    """Write further records of a run into a backend."""
    exporter = exporter_class(name.partition("/")[0])()
    about = RunInfo(id=run.id, experiment=run.experiment, name=run.id, dir=run.path, started_at=1000.0)
    exporter.start(about.of_instance(name))
    exporter.export(records)
    exporter.force_flush(5.0)
    exporter.shutdown(5.0, None)


def digits_records(
    *, steps: int = 50, ranks: int = 4, slow_rank: int = 2, slow_steps: range = range(20, 31)
) -> list[Record]:
    """Return what a run like the demo's records: one rank 25 ms slower in `forward` in some steps."""
    params = {"ranks": ranks, "steps": steps, "batch_size": 32}
    records: list[Record] = [Params(1, 1000.0, params)]
    for step in range(steps):
        values = _values(step, ranks, slow_rank, step in slow_steps)
        records.append(StepRecord(len(records) + 1, "trainer", "step", step, 0, 1000.0 + step, values))
        if step % 10 == 9:
            accuracy = {"evaluator/eval/accuracy": 0.5 + step / 100}
            records.append(StepRecord(len(records) + 1, "evaluator", "eval", step, 0, 1000.5 + step, accuracy))
    records.append(Summary(len(records) + 1, 2000.0, {"test/accuracy": 0.99}))
    records.append(RunStatus(len(records) + 1, 2000.0, "finished"))
    return records


def _values(step: int, ranks: int, slow_rank: int, is_slow: bool) -> dict[str, float]:
    # Healthy steps differ by a little, and it is another rank each time.
    usual, scatter = 0.004, 0.0001 * (step % 3)
    slowest = usual + (0.025 if is_slow else scatter)
    return {
        "loss": 2.0 / (step + 1),
        "samples": 32.0 * ranks,
        "time/step": slowest + 0.002,
        "time/forward": slowest,
        "time/forward/mean": usual + (slowest - usual) / ranks,
        "time/forward/argmax": float(slow_rank if is_slow else step % ranks),
        "time/sync": 0.001 + (slowest - usual),
        "time/sync/mean": 0.001 + (slowest - usual) * (ranks - 1) / ranks,
        "time/sync/argmax": float((slow_rank + 1 + step % (ranks - 1)) % ranks if is_slow else step % ranks),
    }

"""What an agent may ask of the runs on this machine: nothing is written, and nothing leaves it but the answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from otel_ml_exporters.span_lines import span_of
from otel_ml_service.cli.run_status import described
from otel_ml_service.cli.series_json import Json, json_value, metric_json
from otel_ml_service.stored_runs.quick_history import history_of
from otel_ml_service.stored_runs.read_spans import SpanRow, records_and_spans
from otel_ml_service.stored_runs.run_folders import find, run_folders
from otel_ml_service.why import ask, comparison
from otel_ml_service.why.facts import read_facts

__all__ = ["RunTools"]


class RunTools:
    """The runs below a folder, as tools. A RUN is an id or its beginning, an experiment's name, or `latest`."""

    def __init__(self, base: Path) -> None:
        self._base = base

    def runs(self, limit: int = 20) -> list[dict[str, Json]]:
        """List the runs on this machine, the newest first: id, experiment, status, steps, when it was written."""
        return [described(run) for run in run_folders(self._base)[: max(limit, 0)]]

    def series(
        self, run: str, names: Sequence[str] = (), first: int | None = None, last: int | None = None, most: int = 200
    ) -> list[dict[str, Json]]:
        """Return metrics of a run.

        Args:
            run: which one.
            names: published names, or globs such as `time/*`; without any, all are listed with their last value.
            first: first step.
            last: last step.
            most: values of a series; of more, evenly chosen ones.
        """
        read = history_of(find(run, self._base), names)
        if not names:
            return [metric_json(key.axis, key.name, dict(sorted(found.items()))) for key, found in read.series.items()]
        # By series: two globs may fit one.
        chosen = {key: found for name in names for key, found in read.matching(name)}
        return [_values(key.axis, key.name, found, first, last, most) for key, found in chosen.items()]

    def why(
        self,
        run: str,
        first: int | None = None,
        last: int | None = None,
        metric: str = "",
        axis: str = "",
        role: str = "",
    ) -> dict[str, Json]:
        """Tell why steps were slow or a metric changed: caused, coincided or cannot tell, with account and evidence.

        Args:
            run: which one.
            first: first step; without it the steps that cost most.
            last: last step; by default the first.
            metric: published name of a metric whose change is in question; without it, the time of steps is.
            axis: of the steps.
            role: whose steps.
        """
        question = ask.Question(metric or None, first, first if last is None else last, axis or None, role or None)
        found: dict[str, Json] = json_value(asdict(ask.why(read_facts(find(run, self._base)), question)))
        return found

    def diff(self, a: str, b: str) -> dict[str, Json]:
        """Compare two runs: params, code, packages, phases, throughput, metrics at equal steps, why one is slower."""
        found: dict[str, Json] = json_value(
            asdict(comparison.compared(*(read_facts(find(one, self._base)) for one in (a, b))))
        )
        return found

    def spans(
        self,
        run: str,
        step: int | None = None,
        role: str = "",
        rank: int | None = None,
        name: str = "*",
        most: int = 200,
    ) -> list[dict[str, Json]]:
        """Return spans (timers) of a run in the order in which they arrived, with their seconds.

        Args:
            run: which one.
            step: of this step alone.
            role: of this role alone.
            rank: of this rank alone.
            name: name or glob.
            most: spans at most.
        """
        # `x in {None, y}` is true where x was left out, and where it is y. Rows are compared as they are stored, and
        # only those that fit become spans; what follows the last one that is wanted is not read.
        wanted = (
            row
            for row in self._spans(run)
            if step in {None, row["step"]}
            and rank in {None, row["rank"]}
            and role in {"", row["role"]}
            and fnmatchcase(row["name"], name)
        )
        spans = map(span_of, islice(wanted, max(most, 0)))
        return [{**json_value(asdict(span)), "seconds": (span.end_ns - span.start_ns) / 1e9} for span in spans]

    def _spans(self, run: str) -> Iterator[SpanRow]:
        # Of the service's own file alone an agent would be told that a step had no spans that the disk limit took.
        yield from (row for row in records_and_spans(find(run, self._base)) if isinstance(row, dict))


def _values(
    axis: str, name: str, found: Mapping[int, float], first: int | None, last: int | None, most: int
) -> dict[str, Json]:
    steps = [step for step in found if (first is None or step >= first) and (last is None or step <= last)]
    # Rounded up, so that there are never more than `most`.
    every = -(-len(steps) // max(most, 1))
    shown = steps[:: max(every, 1)] if most > 0 else []
    values = [json_value(found[step]) for step in shown]
    return {"axis": axis, "name": name, "steps": shown, "values": values, "of": len(steps)}

"""The end of the demo: what the recorded data say, and nothing that the demo knows by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from otel_ml_exporters.records import Record
from otel_ml_service.stored_runs.run_history import History
from otel_ml_service.why.facts import Slow, facts_of

__all__ = ["Findings", "findings"]

ACCURACY = "evaluator/eval/accuracy"
GOOD_ACCURACY = 0.90


@dataclass(frozen=True, slots=True)
class Findings:
    """What was read from the run.

    Attributes:
        ranks: trainers, from the hyper-parameters.
        accuracy: of the last model that was evaluated, on digits it never saw.
        evaluations: models that were evaluated.
        slow: what cost the trainers most of what otel_ml found while they trained.
        incomplete: steps in which a rank's samples are missing.
        lost: values that somebody counted as lost, by whom and why.
        corrected: values that changed after they had been exported.
    """

    ranks: int
    steps: int
    accuracy: float | None
    evaluations: int
    slow: Slow | None
    incomplete: Sequence[int]
    lost: dict[str, float]
    corrected: int
    run: History

    @property
    def is_complete(self) -> bool:
        """Whether every value of every rank arrived."""
        return not self.incomplete and not self.lost

    @property
    def is_good(self) -> bool:
        """Whether the model learned, and nothing was lost."""
        return self.is_complete and self.accuracy is not None and self.accuracy >= GOOD_ACCURACY


def findings(records: Sequence[Record]) -> Findings:
    """Read a run of the demo."""
    facts = facts_of("demo", records)
    run = facts.history
    ranks, steps, batch_size = (int(_number(run, name)) for name in ("ranks", "steps", "batch_size"))
    samples, accuracy = run.get("samples"), run.get(ACCURACY)
    return Findings(
        ranks=ranks,
        steps=steps,
        accuracy=list(accuracy.values())[-1] if accuracy else None,
        evaluations=len(accuracy),
        # The trainers' own steps have no prefix.
        slow=next((found for found in facts.findings if found.place == "" and found.accuses), None),
        # `samples` is summed over ranks: a step with fewer than all of a batch lacks a rank.
        incomplete=[step for step in range(steps) if samples.get(step) != ranks * batch_size],
        lost=_lost(run),
        corrected=run.amendments,
        run=run,
    )


def _number(run: History, name: str) -> float:
    value = run.params.get(name, 0)
    return value if isinstance(value, (int, float)) else 0


_LOSSES = ("otel_ml/dropped", "otel_ml/lost", "otel_ml/rejected", "otel_ml/too_late", "otel_ml/late")


def _lost(run: History) -> dict[str, float]:
    found = {}
    for key, series in run.series.items():
        last = series[max(series)]
        if key.name.startswith(_LOSSES) and last > 0:
            found[key.name] = last
    return found

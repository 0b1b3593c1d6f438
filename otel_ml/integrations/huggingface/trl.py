"""What TRL's trainers report to W&B by themselves, beside what they log: samples of completions, and times of parts."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import otel_ml

__all__ = ["log_completions", "time_parts"]

PROFILING = "trl.extras.profiling"
"""TRL's module of the context in which the parts of a step run."""


def log_completions(trainer: Any) -> None:
    """Record the completions of the newest step as the table `completions`, where `log_completions=True` asks for it.

    Args:
        trainer: a Trainer that has just logged; of those without completions nothing is recorded.
    """
    kept = getattr(trainer, "_logs", None)  # the only place in which TRL has them before it writes them
    if not getattr(trainer, "log_completions", False) or not isinstance(kept, Mapping) or not kept.get("prompt"):
        return
    step = trainer.state.global_step
    prompts = [_text(prompt) for prompt in kept["prompt"]]
    columns = {
        "step": [step] * len(prompts),
        "prompt": prompts,
        "completion": [_text(completion) for completion in kept["completion"]],
        **{name: list(values) for name, values in kept["rewards"].items()},
        **{name: list(values) for name, values in kept.get("extra", {}).items()},
        "advantage": list(kept["advantages"]),
    }
    # Not strict: a column of `extra` has only the samples for which the program gave something.
    rows = list(zip(*columns.values(), strict=False))
    if getattr(trainer, "log_unique_prompts", False):
        rows = list(_first_of_each(prompts, rows))
    otel_ml.log_table("completions", rows, list(columns), step=step)


def _first_of_each(prompts: list[str], rows: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    seen: set[str] = set()
    for prompt, row in zip(prompts, rows, strict=True):
        if prompt not in seen:
            seen.add(prompt)
            yield row


def _text(said: Any) -> str:
    """Return a prompt as it is, and a conversation as JSON, with the kind of what is not text."""
    if isinstance(said, str):
        return said
    return json.dumps(said, ensure_ascii=False, default=lambda part: f"<{type(part).__name__}>")


def time_parts() -> None:
    """Time each part of a step that TRL profiles, where TRL is loaded: `time/GRPOTrainer.compute_loss`."""
    # Only where the program has imported TRL itself.
    context = getattr(sys.modules.get(PROFILING), "ProfilingContext", None)
    if context is None or hasattr(context.__enter__, "__wrapped__"):
        return
    entered, left = context.__enter__, context.__exit__

    def enter(self: Any) -> Any:
        self._otel_ml_timing = otel_ml.timed(self.name)
        self._otel_ml_timing.__enter__()
        return entered(self)

    def leave(self: Any, *error: Any) -> Any:
        self._otel_ml_timing.__exit__(*error)
        return left(self, *error)

    enter.__wrapped__, leave.__wrapped__ = entered, left  # type: ignore[attr-defined]
    context.__enter__, context.__exit__ = enter, leave

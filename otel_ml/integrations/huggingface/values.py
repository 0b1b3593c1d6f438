"""What the frameworks of Hugging Face log: numbers, and now and then a text or a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import otel_ml
from otel_ml.integrations.several_numbers import as_one

__all__ = ["flat", "log_values", "published"]


def log_values(values: Mapping[str, Any], step: int | None, **options: Any) -> None:
    """Record texts as texts, and everything else as a value, with `options` of `otel_ml.log()`.

    What is in a dictionary is below its name, `loss/train`, as in Accelerate's tracker for TensorBoard. Without options
    the last of a name's values at one step counts, and what is several numbers, such as the score of each class, is
    their mean.
    """
    if not isinstance(values, Mapping):
        otel_ml.log(values, step=step)  # which says what it expects
        return
    named = flat(values)
    texts = {name: value for name, value in named.items() if isinstance(value, str)}
    numbers = {name: value for name, value in named.items() if name not in texts}
    if options:
        otel_ml.log(numbers, step=step, **options)
    else:
        otel_ml.log({name: as_one(value) for name, value in numbers.items()}, step=step, within="last")
    before = f"{options['prefix']}/" if options.get("prefix") else ""
    for name, text in texts.items():
        otel_ml.log_text(f"{before}{name}", text, step=step, axis=options.get("axis"))


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the names under which they are recorded.

    Examples:
        >>> flat({"loss": {"train": 0.5}, "lr": 0.1})
        {'loss/train': 0.5, 'lr': 0.1}
    """
    return dict(_flat(values))


def _flat(values: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and depth < _DEEPEST:
            yield from ((f"{name}/{inner}", one) for inner, one in _flat(value, depth + 1))
        elif value is not None:  # a metric of which no sample has a value, as TRL logs it
            yield name, value


_DEEPEST = 10
"""Of a dictionary in dictionaries; one in itself has no end, and is reported by `otel_ml.log()`."""


def published(logs: Mapping[str, Any], stage: str = "train") -> dict[str, Any]:
    """Return what was logged under the names that the Trainer's W&B and TensorBoard callbacks give.

    With several data sets TRL's trainers give the metrics of each the same names, which only begin with `eval_`: here
    they are told apart as the Trainer's own are.

    Args:
        logs: name → value.
        stage: what the Trainer does: of a name that does not say it.

    Examples:
        >>> published({"loss": 0.5, "eval_loss": 0.7, "test_accuracy": 0.9})
        {'train/loss': 0.5, 'eval/loss': 0.7, 'test/accuracy': 0.9}
        >>> published({"reward": 0.5, "epoch": 1.0}, "eval")
        {'eval/reward': 0.5, 'train/epoch': 1.0}
        >>> published({"eval_math_loss": 0.7, "eval_margin": 0.2}, "eval_math")
        {'eval/math_loss': 0.7, 'eval/math_margin': 0.2}
    """
    return {_published(str(name), stage): value for name, value in logs.items()}


def _published(name: str, stage: str) -> str:
    if name in _OF_TRAINING:
        return f"train/{name}"
    # `eval_math` → (`eval`, `math`); a stage of another name is taken whole.
    evaluated, _, data_set = stage.partition("_")
    if evaluated not in _EVALUATIONS:
        evaluated, data_set = stage, ""
    for known in (*_EVALUATIONS, evaluated):
        # `train_runtime` keeps its `train_`, as in the Trainer's W&B callback.
        if name.startswith(f"{known}_") and known != "train":
            kind, rest = known, name.removeprefix(f"{known}_")
            break
    else:
        kind, rest = evaluated, name
    if data_set and kind == evaluated and not rest.startswith(f"{data_set}_"):
        rest = f"{data_set}_{rest}"
    return f"{kind}/{rest}"


_EVALUATIONS = ("eval", "test")
"""How the Trainer's names of metrics begin that are not of training."""

_OF_TRAINING = frozenset({"epoch", "num_input_tokens_seen"})
"""How far training is, which the Trainer says with all that it logs."""

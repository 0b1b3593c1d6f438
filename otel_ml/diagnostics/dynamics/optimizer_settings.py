"""What the optimizer is set to: learning rates, loss scale, batch and world size."""

from __future__ import annotations

from typing import Any

from otel_ml.diagnostics.measure import Measure, Measures
from otel_ml.never_raises import never_raises

__all__ = ["MEASURES", "record_state"]

_SAME = ("max",)

MEASURES = Measures(
    Measure("train/learning_rate", "1", _SAME, "Learning rate of the first group, or of each named one.", "last"),
    Measure("train/decoupled_learning_rate", "1", _SAME, "That of embedding and output, where decoupled.", "last"),
    Measure("train/weight_decay", "1", _SAME, "Weight decay of the first group.", "last"),
    Measure("train/loss_scale", "1", ("min", "max"), "Loss scale.", "last"),
    Measure("train/batch_size", "{sample}", _SAME, "Samples of the job in a step.", "last"),
    Measure("train/micro_batch_size", "{sample}", _SAME, "Samples of a rank in one forward.", "last"),
    Measure("train/world_size", "{rank}", _SAME, "Ranks in the job.", "last"),
)
"""What is recorded, by name."""


@never_raises
def record_state(
    optimizer: Any = None,
    *,
    loss_scale: Any = None,
    batch_size: int | None = None,
    micro_batch_size: int | None = None,
    world_size: int | None = None,
) -> None:
    """Record what training is set to at the current step; what is not given is absent.

    Args:
        optimizer: with `param_groups`. A group with a `name` gets a series of its own; one with `is_decoupled_lr`, as
            Megatron marks it, is the decoupled learning rate.
        loss_scale: a number or 0-d tensor.
        batch_size: of the job.
        micro_batch_size: of a rank.
        world_size: ranks.
    """
    groups = [] if optimizer is None else list(optimizer.param_groups)
    plain = [group for group in groups if not group.get("is_decoupled_lr")]
    decoupled = [group for group in groups if group.get("is_decoupled_lr")]
    given = {
        "train/decoupled_learning_rate": decoupled[0]["lr"] if decoupled else None,
        # That of the first group stands for the optimizer; groups that have a name have theirs beside it.
        "train/learning_rate": plain[0]["lr"] if plain else None,
        "train/weight_decay": plain[0].get("weight_decay") if plain else None,
        "train/loss_scale": loss_scale,
        "train/batch_size": batch_size,
        "train/micro_batch_size": micro_batch_size,
        "train/world_size": world_size,
    }
    MEASURES.record({name: value for name, value in given.items() if value is not None})
    # Beside the value of all, which `train/learning_rate` is without attributes.
    for group in plain:
        if "name" in group:
            MEASURES["train/learning_rate"].record(group["lr"], attributes={"group": group["name"]})

"""The kinds of things that `log()` takes, and which of them each logger has a place for."""

from __future__ import annotations

__all__ = ["CONSOLE", "KINDS", "MEASURED", "MLFLOW", "NUMBERS", "PROVENANCE", "TENSORBOARD", "WANDB"]

MEASURED = frozenset({"flops_pb", "flops_pe", "system", "carbon", "execution_time"})
"""Numbers that are measured where they are not given."""

NUMBERS = MEASURED | {"metric", "param", "watch"}
"""Curves, histograms and parameters: every backend shows them."""

CONSOLE = NUMBERS | {"torch", "artifact"}
MLFLOW = NUMBERS | {
    "figure", "image", "artifact", "torch", "dict", "text", "model", "best_model", "dataset", "prov_documents",
}  # fmt: skip
WANDB = NUMBERS | {"figure", "image", "torch", "dict", "text"}
TENSORBOARD = NUMBERS | {"image", "text", "figure", "torch"}
PROVENANCE = NUMBERS | {"model", "best_model", "torch", "prov_documents"}

KINDS = CONSOLE | MLFLOW | WANDB | TENSORBOARD | PROVENANCE

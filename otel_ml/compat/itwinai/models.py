"""Models: as MLflow's own format where MLflow is there and asked for, else as what `torch.load()` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_ml.compat.itwinai.files import Files, is_path

__all__ = ["model_file"]


def model_file(item: Any, identifier: str, files: Files, *, for_mlflow: bool) -> Path:
    """Return a file or folder that holds a model: a path itself, MLflow's format, or `torch.save()`'s."""
    if is_path(item):
        return Path(item)
    return (_as_mlflow(item, identifier, files) if for_mlflow else None) or files.as_torch(item, identifier)


def _as_mlflow(item: Any, identifier: str, files: Files) -> Path | None:
    """Return a folder that `mlflow.pytorch.load_model()` reads; None where it cannot be made."""
    import torch

    if not isinstance(item, torch.nn.Module):
        return None
    try:
        import mlflow.pytorch
    except ImportError:
        return None
    folder = files.folder_for(identifier)
    # With requirements given MLflow does not load the model in another process to find them out, which takes seconds.
    # Its newer default format stores a traced graph, which needs an example of the input.
    mlflow.pytorch.save_model(
        item,
        str(folder),
        pip_requirements=[f"torch=={torch.__version__.partition('+')[0]}"],
        serialization_format="pickle",
    )
    return folder

"""Things as files: what a logger keeps lies below its `savedir`, and nothing is written over."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

__all__ = ["Files", "described", "model_file"]


class Files:
    """Writes things into a folder.

    Args:
        folder: is made when the first file is written.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self.folder: Path = Path(folder)

    def pickled(self, item: Any, identifier: str) -> Path:
        """Pickle `item` to `<folder>/<identifier>` and return that path; a file of that name is replaced."""
        path = self._path(identifier)
        # Written beside and renamed: a process that is killed here leaves the old file whole.
        beside = path.with_name(f".{path.name}.part")
        with beside.open("wb") as file:
            pickle.dump(item, file)
        beside.replace(path)
        return path

    def kept(self, item: Any, identifier: str) -> Path:
        """Return a file or folder that holds `item`: itself if it is a path, else written as what it is."""
        if is_path(item):
            return Path(item)
        ending, write = _form(item, identifier)
        path = self._unused(identifier, ending)
        with path.open("wb") as file:
            write(file)
        return path

    def as_torch(self, item: Any, identifier: str) -> Path:
        """Return a file that `torch.load()` reads."""
        import torch

        path = self._unused(identifier, ".pt")
        torch.save(item, path)
        return path

    def as_mapping(self, item: Any, identifier: str) -> Path:
        """Return a JSON file, or a YAML one where the identifier ends so."""
        path = self._unused(identifier, ".json")
        with path.open("wb") as file:
            (_write_yaml if path.suffix in {".yaml", ".yml"} else _write_json)(item, file)
        return path

    def folder_for(self, identifier: str) -> Path:
        """Return a folder that is not there yet."""
        return self._unused(identifier, "")

    def _path(self, identifier: str) -> Path:
        # A name such as `../../x` stays below the folder.
        inside = [part for part in PurePosixPath(str(identifier)).parts if part not in {"/", "..", "."}]
        path = self.folder.joinpath(*(inside or ["item"]))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _unused(self, identifier: str, ending: str) -> Path:
        # What was logged before may not be read yet: each one gets a file of its own.
        path = self._path(identifier if PurePosixPath(identifier).suffix else f"{identifier}{ending}")
        stem, number = path.stem, 0
        while path.exists():
            number += 1
            path = path.with_name(f"{stem}-{number}{path.suffix}")
        return path


def is_path(item: Any) -> bool:
    """Whether `item` names a file or folder that is there."""
    try:
        return isinstance(item, (str, PathLike)) and Path(item).exists()
    except (OSError, ValueError):  # a long text is not a path
        return False


def described(dataset: Any) -> dict[str, Any]:
    """Return what is known of a data set: MLflow's own description, or its class, length and fields."""
    if callable(getattr(dataset, "to_dict", None)):
        return dict(dataset.to_dict())
    known: dict[str, Any] = {"class": f"{type(dataset).__module__}.{type(dataset).__qualname__}"}
    for name, get in (("length", len), ("shape", lambda item: list(item.shape))):
        try:
            known[name] = get(dataset)
        except (TypeError, AttributeError):
            continue
    if isinstance(dataset, (str, PathLike)):
        known["path"] = str(dataset)
    return known


def _form(item: Any, identifier: str) -> tuple[str, Callable[[BinaryIO], None]]:
    """Return (ending, how to write it)."""
    if isinstance(item, (bytes, bytearray)):
        return ".bin", lambda file: _write_bytes(bytes(item), file)
    if isinstance(item, str):
        return ".txt", lambda file: _write_bytes(item.encode(), file)
    if hasattr(item, "savefig"):
        return ".png", lambda file: item.savefig(file, format="png")
    if hasattr(item, "to_html"):
        return ".html", lambda file: _write_bytes(item.to_html().encode(), file)
    # Not where the name has an ending: `weights.bin` says that the program reads it otherwise than as JSON.
    if isinstance(item, (Mapping, list, tuple, int, float, bool)) and not PurePosixPath(identifier).suffix:
        return ".json", lambda file: _write_json(item, file)
    return ".pkl", lambda file: pickle.dump(item, file)


def _write_bytes(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _write_json(item: Any, file: BinaryIO) -> None:
    file.write(json.dumps(item, indent=2, default=str).encode())


def _write_yaml(item: Any, file: BinaryIO) -> None:
    import yaml

    # By way of JSON, which has the text of what it does not know: safe_dump() refuses numbers of numpy and other
    # objects.
    plain = json.loads(json.dumps(item, default=str))
    file.write(yaml.safe_dump(plain, sort_keys=False).encode())


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

"""`wandb.Object3D`, `wandb.Molecule` and the like, which only W&B's own pages show."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import otel_ml
from otel_ml._internal.events.temporary_folder import TemporaryFolder
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.wandb.frozen import frozen
from otel_ml.compat.wandb.media import Image, Media, as_text, there

__all__ = ["Bokeh", "Molecule", "Object3D", "Plotly"]


class _File(Media):
    """The file is kept as an artifact, as is what was read from memory and has a `file_type`; else a text."""

    ENDINGS: tuple[str, ...] = ()
    """Of the files that W&B's page shows."""

    def __init__(self, data_or_path: Any, caption: str | None = None, **options: Any) -> None:
        kind = f"wandb.{type(self).__name__}"
        others = {name: value for name, value in options.items() if name != "file_type"}
        options_not_kept(kind, "a file is kept without it.", caption=caption, **others)
        data = _path_or_text(data_or_path) if hasattr(data_or_path, "read") else data_or_path
        # An open file with a name is its path, so it is kept as a file; of any other only what it holds is known.
        is_read = hasattr(data_or_path, "read") and data != getattr(data_or_path, "name", None)
        self._file_type = options.get("file_type") if is_read else None
        # By its ending alone: a molecule as SMILES, or the JSON of a figure, is a text that names no file, and is not
        # missed. `endswith(())`, of a class without endings, is False.
        is_path = not is_read and isinstance(data, (str, PathLike)) and os.fspath(data).endswith(self.ENDINGS)
        self._data = there(kind, data) if is_path else frozen(data)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record the file, or a text."""
        if self._data is None:
            return
        if isinstance(self._data, (str, PathLike)) and os.path.isfile(self._data):  # noqa: PTH113 (of any text)
            otel_ml.log_artifact(self._data, name=name, type=type(self).__name__.lower(), step=step, axis=axis)
            return
        if self._file_type in self.ENDINGS:
            self._write(name, str(self._data), str(self._file_type), step, axis)
            return
        not_kept(f"wandb.{type(self).__name__} in {name!r}", "it is kept as text.")
        as_text(name, self._data, step, axis)

    def _write(self, name: str, content: str, ending: str, step: int | None, axis: str | None) -> None:
        kind = type(self).__name__.lower()
        folder = TemporaryFolder("file")
        written = folder.path / f"{kind}.{ending}"
        written.write_text(content, encoding="utf-8")
        otel_ml.log_artifact(written, name=name, type=kind, step=step, axis=axis)


def _path_or_text(file: Any) -> Any:
    """Return the path of an open file, or what it holds where it has none."""
    name = getattr(file, "name", None)
    # The name of a file that was opened by its number is that number.
    return name if isinstance(name, str) and os.path.isfile(name) else file.read()  # noqa: PTH113 (of any text)


def _what_is_wrong(given: Any, data: Any, file_type: str | None) -> str | None:
    """Return why W&B takes no such cloud or mesh."""
    if data is None:
        return None  # a file that is not there
    if isinstance(data, Mapping):
        return None if data.get("type") == "lidar/beta" else "a scene has the type 'lidar/beta'."
    if isinstance(data, (str, PathLike)):
        # What was read from an open file is named by its type alone.
        named = file_type if hasattr(given, "read") and data != getattr(given, "name", None) else os.fspath(data)
        return (
            None if str(named).endswith(_MESHES) else f"files are {', '.join(_MESHES)}; an open one has a file_type=."
        )
    # x, y, z; with 4 columns a category behind them, with 6 a color.
    shape: tuple[int, ...] = tuple(getattr(data, "shape", ()))
    return None if len(shape) == 2 and shape[1] in {3, 4, 6} else "points are an array of 3, 4 or 6 columns."


_MESHES = ("obj", "gltf", "glb", "babylon", "stl", "pts.json")
_MOLECULES = ("pdb", "pqr", "mmcif", "mcif", "cif", "sdf", "sd", "gro", "mol2", "mmtf")
_OF_RDKIT = ("mol", "sdf")


def _as_lists(value: Any) -> Any:
    """Return the numbers of an array or a tensor, and what anything else says of itself."""
    return value.tolist() if callable(getattr(value, "tolist", None)) else text_of(value)


def _written(figure: Any) -> Any:
    """Return a figure of plotly as the JSON text that it is now; anything else, or one that has none, as it is."""
    try:
        return figure.to_json() if callable(getattr(figure, "to_json", None)) else figure
    except Exception:  # noqa: BLE001 (somebody's figure: who records it says what is wrong with it)
        return figure


class Object3D(_File):
    """A point cloud or a mesh. A cloud that is given as numbers is kept as the file that W&B writes of it."""

    ENDINGS: tuple[str, ...] = _MESHES

    def __init__(self, data_or_path: Any, caption: str | None = None, **options: Any) -> None:
        super().__init__(data_or_path, caption, **options)
        wrong = _what_is_wrong(data_or_path, self._data, options.get("file_type"))
        if wrong is not None:
            not_kept("wandb.Object3D()", f"ValueError: {wrong} It is kept as it is.")

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record the file, or all points."""
        # Points as numbers; anything else is a file or a text.
        if not isinstance(self._data, (Mapping, list, tuple)) and not hasattr(self._data, "tolist"):
            super().keep(name, step, axis)
            return
        self._write(name, json.dumps(self._data, default=_as_lists), "pts.json", step, axis)

    @classmethod
    def from_file(cls, data_or_path: Any, file_type: str | None = None) -> Object3D:
        """Return that of a file."""
        return cls(data_or_path, file_type=file_type)

    @classmethod
    def from_numpy(cls, data: Any) -> Object3D:
        """Return a cloud of points (x, y, z), with a category or a color."""
        return cls(data)

    @classmethod
    def from_point_cloud(
        cls,
        points: Any,
        boxes: Sequence[Any] = (),
        vectors: Sequence[Any] | None = None,
        point_cloud_type: Any = "lidar/beta",
    ) -> Object3D:
        """Return a cloud of points with boxes and vectors."""
        return cls({"type": point_cloud_type, "points": points, "boxes": boxes, "vectors": vectors})


class Molecule(_File):
    """A molecule."""

    ENDINGS: tuple[str, ...] = _MOLECULES

    @classmethod
    def from_rdkit(cls, data_or_path: Any, caption: str | None = None, **options: Any) -> Molecule:
        """Return that of a file, or of an object of the package `rdkit`."""
        if isinstance(data_or_path, (str, PathLike)) and not os.fspath(data_or_path).endswith(_OF_RDKIT):
            not_kept(
                "wandb.Molecule.from_rdkit()", f"ValueError: files are {', '.join(_OF_RDKIT)}. It is kept as it is."
            )
        return cls(data_or_path, caption, **options)

    @classmethod
    def from_smiles(cls, data: str, caption: str | None = None, **options: Any) -> Molecule:
        """Return that of a text in SMILES; it is kept as that text."""
        return cls(data, caption, **options)


class Plotly(_File):
    """A plotly figure, or one of matplotlib, which is kept as a picture."""

    def __init__(self, val: Any) -> None:
        super().__init__(_written(val))

    @classmethod
    def make_plot_media(cls, val: Any) -> Media:
        """Return a figure of matplotlib as a picture, any other as it is."""
        return Image(val) if hasattr(val, "savefig") else cls(val)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record a figure of matplotlib as an image, any other as a text."""
        if isinstance(self._data, bytes):
            Image(self._data).keep(name, step, axis)
        else:
            super().keep(name, step, axis)


class Bokeh(_File):
    """A bokeh plot."""

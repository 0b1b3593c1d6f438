"""A mesh or a cloud of points as a PLY file, which programs that show meshes read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_ml.compat.tracking.as_array import as_array

__all__ = ["Mesh"]


@dataclass(frozen=True)
class Mesh:
    """Points, and what lies between them.

    Attributes:
        vertices: (points, 3).
        colors: (points, 3), from 0 to 255; None without.
        faces: (triangles, 3), each the numbers of three points; None without.
    """

    vertices: Any
    colors: Any = None
    faces: Any = None

    @classmethod
    def of_batch(cls, vertices: Any, colors: Any, faces: Any) -> list[Mesh]:
        """Return those of a call: each array has one more dimension, in which they stand.

        Raises:
            ValueError: an array is not (meshes, any number, 3), or they are not of the same meshes.
        """
        given = {"vertices": vertices, "colors": colors, "faces": faces}
        arrays = {name: as_array(value) for name, value in given.items() if value is not None}
        for name, array in arrays.items():
            if array.ndim != 3 or array.shape[2] != 3:
                raise ValueError(f"{name} of shape {array.shape}, expected (meshes, {name}, 3)")
        several = {name: len(array) for name, array in arrays.items()}
        if len(set(several.values())) != 1:
            raise ValueError(f"expected as many of each: {several}")
        if "colors" in arrays and arrays["colors"].shape != arrays["vertices"].shape:
            raise ValueError(f"colors of shape {arrays['colors'].shape}, expected {arrays['vertices'].shape}")
        return [cls(**{name: array[number] for name, array in arrays.items()}) for number in range(several["vertices"])]

    def write(self, path: Path) -> None:
        """Write the file, as text."""
        with path.open("w", encoding="ascii", newline="\n") as file:
            file.writelines(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        faces = () if self.faces is None else self.faces.tolist()
        yield from ("ply", "format ascii 1.0", f"element vertex {len(self.vertices)}")
        yield from (f"property float {axis}" for axis in "xyz")
        if self.colors is not None:
            yield from (f"property uchar {color}" for color in ("red", "green", "blue"))
        yield from (f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header")
        columns = [self.vertices.tolist()]
        if self.colors is not None:
            columns.append(self.colors.clip(0, 255).astype("uint8").tolist())
        yield from (" ".join(str(number) for part in row for number in part) for row in zip(*columns, strict=True))
        yield from (" ".join(map(str, ("3", *map(int, face)))) for face in faces)

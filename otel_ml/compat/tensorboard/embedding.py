"""The files that TensorBoard's projector shows: points, their labels and pictures, and where these are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from otel_ml.compat.tracking.as_array import as_array
from otel_ml.compat.tracking.pictures import as_pillow, grid

__all__ = ["Embedding", "Projector"]

_CONFIG, _POINTS, _LABELS, _SPRITE = "projector_config.pbtxt", "tensors.tsv", "metadata.tsv", "sprite.png"
_ESCAPES = {"%": "%25", "/": "%2f", "\\": "%5c"}


@dataclass(frozen=True)
class Embedding:
    """Points with their labels and pictures, at a step.

    Attributes:
        tag: of the call.
        step: at which they are.
        points: (n, dimensions).
        labels: lines of the file of labels; empty without.
        pictures: (n, height, width, channels); None without.
    """

    tag: str
    step: int
    points: Any
    labels: Sequence[str] = ()
    pictures: Any = None

    @classmethod
    def of(cls, tag: str, step: int, points: Any, labels: Any, pictures: Any, header: Any) -> Embedding:
        """Return that of a call; of tensors on a device it waits for the values.

        Raises:
            ValueError: the points have other dimensions than (n, dimensions), or labels or pictures are not n.
        """
        matrix = as_array(points)
        if matrix.ndim != 2:
            raise ValueError(f"points of shape {matrix.shape}, expected (n, dimensions)")
        rows = None if labels is None else list(labels)
        drawn = None if pictures is None else as_array(pictures)
        for what, given in (("labels", rows), ("pictures", drawn)):
            if given is not None and len(given) != len(matrix):
                raise ValueError(f"{len(given)} {what}, expected {len(matrix)}, one for each point")
        return cls(
            str(tag),
            step,
            matrix,
            () if rows is None else _lines(rows, header),
            # (n, channels, height, width) → (n, height, width, channels), which grid() and Pillow want.
            None if drawn is None else drawn.transpose(0, 2, 3, 1),
        )

    @property
    def folder(self) -> str:
        """Where TensorBoard's writers put the files, below the writer's folder."""
        # As torch's writer has it: TensorBoard finds what is written here beside what that one has written before.
        return f"{self.step:05d}/{''.join(_ESCAPES.get(letter, letter) for letter in self.tag)}"

    def write_into(self, made: Path) -> None:
        """Write the files, and a configuration of them alone."""
        _write_lines(made / _POINTS, ("\t".join(map(str, row)) for row in self.points.tolist()))
        if self.labels:
            _write_lines(made / _LABELS, self.labels)
        if self.pictures is not None:
            as_pillow(_square(self.pictures)).save(made / _SPRITE)
        _write_lines(made / _CONFIG, [self.entry()])

    def entry(self, below: str = "") -> str:
        """Return what the projector's configuration says of it, where its files are `below` that."""
        lines = [f"tensor_name: {_text(f'{self.tag}:{self.step:05d}')}", f"tensor_path: {_text(below + _POINTS)}"]
        if self.labels:
            lines.append(f"metadata_path: {_text(below + _LABELS)}")
        if self.pictures is not None:
            _, height, width, _ = self.pictures.shape
            dims = f"single_image_dim: {width} single_image_dim: {height}"
            lines.append(f"sprite {{ image_path: {_text(below + _SPRITE)} {dims} }}")
        return "\n".join(["embeddings {", *(f"  {line}" for line in lines), "}"])


class Projector:
    """What a writer has written for the projector.

    A file that is there is replaced, not written into: whoever reads it, as for the run, goes on reading it.
    """

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._entries: dict[str, str] = {}

    def write(self, embedding: Embedding) -> Path:
        """Write the files, and in the writer's folder what there is by now; return the folder of the files."""
        folder = Path(self._log_dir, embedding.folder)
        # On the same disk as the place of the files, so that replace() is one rename.
        with TemporaryDirectory(prefix=".embedding-", dir=self._log_dir) as made:
            embedding.write_into(Path(made))
            folder.mkdir(parents=True, exist_ok=True)
            # Of an earlier call at the same step that had labels or pictures, where this one has none.
            for left in (_LABELS, _SPRITE):
                (folder / left).unlink(missing_ok=True)
            for file in sorted(Path(made).iterdir()):
                file.replace(folder / file.name)
            self._entries[embedding.folder] = embedding.entry(f"{embedding.folder}/")
            config = Path(made, _CONFIG)
            # All entries each time, as torch does: the file of a place that is not a disk may not take more lines.
            _write_lines(config, self._entries.values())
            config.replace(Path(self._log_dir, _CONFIG))
        return folder


def _lines(labels: Sequence[Any], header: Any) -> Sequence[str]:
    """Return a line for each label; with a header several columns, and it before them."""
    if not header:
        return [str(label) for label in labels]
    if labels and len(header) != len(labels[0]):
        raise ValueError(f"metadata_header has {len(header)} columns, and a label {len(labels[0])}")
    return ["\t".join(map(str, row)) for row in [header, *labels]]


def _square(pictures: Any) -> Any:
    """Return pictures as one that is as high as it is wide, which the projector wants.

    Raises:
        ValueError: they are higher than wide.
    """
    import numpy as np

    laid = grid(pictures)
    height, width, channels = laid.shape
    if height > width:
        raise ValueError(f"pictures are square, not {pictures.shape[1]} high and {pictures.shape[2]} wide")
    square = np.zeros((width, width, channels), laid.dtype)
    square[:height] = laid
    return square


def _text(value: str) -> str:
    # A string of protobuf's text format, in which the escapes of JSON mean the same.
    return json.dumps(value, ensure_ascii=False)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)

"""`wandb.Image`, `wandb.Audio` and the like: what a program logs beside numbers, kept under its name."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.tracking.pictures import as_array, as_pillow, film_strip, grid, in_range, ordered, rescaled
from otel_ml.compat.wandb.frozen import frozen

__all__ = [
    "Audio",
    "Classes",
    "Html",
    "Image",
    "Media",
    "Video",
    "WBValue",
    "as_text",
    "is_picture",
    "keep",
    "there",
]

CHANNELS = frozenset({1, 3, 4})

_USUAL_RATE = 44_100

_PNG = b"\x89PNG"


class Media:
    """What can be logged and is not a number. Of a file that is not there nothing is kept."""

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it under `name`."""
        raise NotImplementedError


class Image(Media):
    """A picture: a path, a PIL image, an array or tensor (floats 0-1 or 0-255), or a matplotlib figure."""

    def __init__(
        self,
        data_or_path: Any,
        mode: str | None = None,
        caption: str | None = None,
        grouping: int | None = None,
        classes: Any = None,
        boxes: Any = None,
        masks: Any = None,
        file_type: str | None = None,
        normalize: bool = True,
    ) -> None:
        options_not_kept(
            "wandb.Image",
            "the picture is kept as a PNG of its own colors, floats from 0 to 1 or 0 to 255.",
            mode=mode,
            grouping=grouping,
            classes=classes,
            file_type=None if file_type == "png" else file_type,
            **({} if normalize else {"normalize": "False"}),
        )
        self.caption = caption
        given = data_or_path._data if isinstance(data_or_path, Image) else data_or_path  # noqa: SLF001 (its own class)
        self._data: Any = frozen(there("wandb.Image", given))
        if boxes or masks:
            not_kept("wandb.Image(boxes=…, masks=…)", "the picture is kept without them.")

    @property
    def image(self) -> Any:
        """The picture, of the package Pillow."""
        data = self._data
        if isinstance(data, (str, PathLike, bytes)):
            return _opened(data)
        return as_pillow(rescaled(_one_picture(data))) if hasattr(data, "shape") else data

    @property
    def format(self) -> str:
        """How it is kept."""
        return "png"

    def to_data_array(self) -> list[list[Any]]:
        """Return the pixels of each row."""
        import numpy as np

        found: list[list[Any]] = np.asarray(self.image).tolist()
        return found

    @classmethod
    def all_captions(cls, images: Sequence[Image]) -> list[str] | bool:
        """Return the captions, or False where there is none."""
        return _captions([image.caption for image in images])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Image):
            return False
        return (self.caption, self.to_data_array()) == (other.caption, other.to_data_array())

    def __hash__(self) -> int:
        return id(self)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it as an image."""
        data = self._data
        if data is None:
            return
        if hasattr(data, "savefig"):
            otel_ml.log_figure(name, data, caption=self.caption, step=step, axis=axis)
            return
        is_content = isinstance(data, (str, PathLike, bytes))
        picture = _picture_of(data) if is_content else rescaled(_one_picture(data))
        otel_ml.log_image(name, picture, caption=self.caption, step=step, axis=axis)


class Audio(Media):
    """A sound: samples with their rate, or the path of a file."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        self._data = frozen(there("wandb.Audio", data_or_path))
        _say_of_file("wandb.Audio", data_or_path, caption)
        self.sample_rate = sample_rate
        self.caption = caption
        if sample_rate is None and not isinstance(data_or_path, (str, PathLike)):
            self.sample_rate = _USUAL_RATE
            not_kept("wandb.Audio()", f'ValueError: Argument "sample_rate" is required; {_USUAL_RATE} is taken.')

    @classmethod
    def sample_rates(cls, audio_list: Sequence[Audio]) -> list[int | None]:
        """Return the samples in a second of each."""
        return [audio.sample_rate for audio in audio_list]

    @classmethod
    def durations(cls, audio_list: Sequence[Audio]) -> list[float | None]:
        """Return how long each is, in seconds; None of a file."""
        return [audio.duration for audio in audio_list]

    @classmethod
    def captions(cls, audio_list: Sequence[Audio]) -> list[str] | bool:
        """Return the captions, or False where there is none."""
        return _captions([audio.caption for audio in audio_list])

    @property
    def duration(self) -> float | None:
        """How long it is, in seconds; None of a file."""
        if self.sample_rate is None or self._data is None or isinstance(self._data, (str, PathLike)):
            return None
        return len(self._data) / self.sample_rate

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it as audio; a file as an artifact."""
        if self._data is None:
            return
        if isinstance(self._data, (str, PathLike)):
            otel_ml.log_artifact(self._data, name=name, type="audio", step=step, axis=axis)
        else:
            rate = self.sample_rate or _USUAL_RATE
            otel_ml.log_audio(name, self._data, rate, caption=self.caption, step=step, axis=axis)


class Video(Media):
    """A film: a file is kept as an artifact, frames (time, channel, height, width) as pictures side by side."""

    EXTS = (".gif", ".mp4", ".webm", ".ogg")
    """Files that W&B's page plays."""

    def __init__(
        self,
        data_or_path: Any,
        caption: str | None = None,
        fps: int | None = None,
        format: str | None = None,  # noqa: A002 (W&B's name)
    ) -> None:
        self._data = frozen(there("wandb.Video", data_or_path))
        _say_of_file("wandb.Video", data_or_path, caption)
        self._caption = caption
        if isinstance(data_or_path, (str, PathLike)):
            options_not_kept("wandb.Video", "the file is kept as it is.", fps=fps, format=format)
            if Path(data_or_path).suffix.lower() not in self.EXTS:
                known = f"ValueError: W&B plays {', '.join(self.EXTS)}. The file is kept."
                not_kept(f"wandb.Video({str(data_or_path)!r})", known)
        elif len(getattr(data_or_path, "shape", ())) not in {0, 4, 5}:
            not_kept(
                "wandb.Video()", "ValueError: frames are (time, channel, height, width). It is kept as one picture."
            )

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record the file, or up to 16 of the frames."""
        if self._data is None:
            return
        if isinstance(self._data, (str, PathLike)):
            otel_ml.log_artifact(self._data, name=name, type="video", step=step, axis=axis)
            return
        frames = as_array(self._data)
        if frames.ndim == 3:
            frames = frames[None]
        frames = ordered(frames[0] if frames.ndim == 5 else frames, "TCHW", "THWC")
        strip, kept = film_strip(frames)
        not_kept(f"wandb.Video in {name!r}", f"{kept} of its {len(frames)} frames are kept as one picture.")
        otel_ml.log_image(name, in_range(strip), caption=self._caption, step=step, axis=axis)


class Html(Media):
    """A page: a text, an open file, or a path."""

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        del inject
        self._data = data.read() if hasattr(data, "read") else data
        self._is_text = data_is_not_path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Html) and self.html == other.html

    def __hash__(self) -> int:
        return id(self)

    @property
    def html(self) -> str:
        """The page, or the path of its file."""
        return str(self._data)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record it as text; a file as an artifact."""
        data = self._data
        is_page = isinstance(data, PathLike) or str(data).endswith((".html", ".htm"))
        if is_page and not self._is_text and os.path.isfile(data):  # noqa: PTH113 (of any text)
            otel_ml.log_artifact(data, name=name, type="html", step=step, axis=axis)
        else:
            otel_ml.log_text(name, str(data), step=step, axis=axis)


class Classes(Media):
    """Names of the classes of pictures."""

    def __init__(self, class_set: Sequence[Any]) -> None:
        self._class_set = list(class_set)

    def keep(self, name: str, step: int | None, axis: str | None) -> None:
        """Record them as text."""
        otel_ml.log_text(name, str(self._class_set), step=step, axis=axis)


WBValue = Media
"""What W&B calls the base of all of them."""


def there(call: str, given: Any) -> Any:
    """Return what a call was given; None, and said with W&B's error, where it names a file that is not there."""
    if not isinstance(given, (str, PathLike)) or "://" in str(given) or os.path.exists(given):  # noqa: PTH110 (any text)
        return given
    not_kept(f"{call}({safe_repr(given, 80)})", "FileNotFoundError: there is no such file. Nothing is kept.")
    return None


def keep(name: str, value: Any, step: int | None, axis: str | None) -> None:
    """Record whatever `log()` was given that is not a number; what cannot be read is said, and nothing else is lost."""
    try:
        _keep(name, value, step, axis)
    except Exception as error:  # noqa: BLE001 (somebody's file or object)
        not_kept(f"{type(value).__name__} in {name!r}", f"{type(error).__name__}: {error}. It is left out.")


def is_picture(value: Any) -> bool:
    """Whether it is a figure of matplotlib, or a picture of Pillow."""
    return hasattr(value, "savefig") or type(value).__module__.startswith("PIL.")


def _keep(name: str, value: Any, step: int | None, axis: str | None) -> None:
    if value is None:
        return
    if isinstance(value, Media):
        value.keep(name, step, axis)
    elif isinstance(value, str):
        otel_ml.log_text(name, value, step=step, axis=axis)
    elif is_picture(value):
        Image(value).keep(name, step, axis)
    elif hasattr(value, "itertuples"):
        otel_ml.log_table(name, value, step=step, axis=axis)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, Media) for item in value):
        for part, item in _numbered(name, value):
            keep(part, item, step, axis)
    elif _is_array(value):
        otel_ml.log_histogram(name, value, step=step, axis=axis)
    else:
        not_kept(f"A value of type {type(value).__name__} in {name!r}", "it is kept as text.")
        as_text(name, value, step, axis)


def _say_of_file(call: str, given: Any, caption: str | None) -> None:
    if isinstance(given, (str, PathLike)):
        options_not_kept(call, "a file is kept without it.", caption=caption)


def _captions(given: Sequence[str | None]) -> list[str] | bool:
    return ["" if caption is None else caption for caption in given] if any(c is not None for c in given) else False


def as_text(name: str, value: Any, step: int | None, axis: str | None) -> None:
    """Record what a value says of itself."""
    text = value.to_json() if callable(getattr(value, "to_json", None)) else str(value)
    otel_ml.log_text(name, text, step=step, axis=axis)


def _numbered(name: str, items: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    if len(items) == 1:
        yield name, items[0]
    else:
        yield from ((f"{name}/{number}", item) for number, item in enumerate(items))


def _is_array(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, (int, float)) for item in value)
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _picture_of(given: str | PathLike[str] | bytes) -> Any:
    content = given if isinstance(given, bytes) else Path(given).read_bytes()
    return content if content.startswith(_PNG) else _opened(given)


def _opened(given: str | PathLike[str] | bytes) -> Any:
    from PIL import Image as Pillow

    return Pillow.open(io.BytesIO(given) if isinstance(given, bytes) else given).convert("RGB")


def _one_picture(data: Any) -> Any:
    """Return several pictures, (n, channels, height, width) or channels last, in rows and columns."""
    dimensions = len(getattr(data, "shape", ()))
    if dimensions == 3 and hasattr(data, "detach") and data.shape[0] in CHANNELS:
        return ordered(data, "CHW", "HWC")  # whatever its width is
    if dimensions != 4:
        return data
    # As W&B takes them: channels first of torch, last of numpy; an array that can only be meant otherwise is taken so.
    has_channels_first = hasattr(data, "detach") or (data.shape[1] in CHANNELS and data.shape[-1] not in CHANNELS)
    return grid(ordered(data, "NCHW" if has_channels_first else "NHWC", "NHWC"))

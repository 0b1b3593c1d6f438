"""What a `ModelCheckpoint` has saved → checkpoints of the run, each with its metadata and aliases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml._internal.events.temporary_folder import TemporaryFolder
from otel_ml.never_raises import never_raises

__all__ = ["Checkpoints", "SavedCheckpoint", "saved_checkpoints"]

_SETTINGS = (
    "monitor",
    "mode",
    "save_last",
    "save_top_k",
    "save_weights_only",
    "_every_n_train_steps",
    "_every_n_epochs",
)


@dataclass(frozen=True)
class SavedCheckpoint:
    """A file (or, of a sharded strategy, a folder) that a `ModelCheckpoint` keeps, and what it says of it."""

    path: Path
    score: float | None
    aliases: tuple[str, ...]
    saved_at: float
    settings: Mapping[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """What `metadata.yaml` holds."""
        return {"score": self.score, "original_filename": self.path.name, "ModelCheckpoint": dict(self.settings)}


def saved_checkpoints(callback: Any) -> list[SavedCheckpoint]:
    """Return what `callback` keeps now, oldest first, each path once: the best ones, the last, the newest.

    `latest` is the one saved last, `best` the one of the best score.
    """
    best = str(getattr(callback, "best_model_path", "") or "")
    # Path → score; setdefault() below keeps what the best ones have, and the empty path of what there is none of is
    # left out.
    scores: dict[str, Any] = dict(getattr(callback, "best_k_models", None) or {})
    scores.setdefault(best, getattr(callback, "best_model_score", None))
    # The last and the newest may be among the best, which have scores of their own; who keeps none has an empty path.
    for path in (getattr(callback, "last_model_path", ""), getattr(callback, "_last_checkpoint_saved", "")):
        scores.setdefault(str(path or ""), getattr(callback, "current_score", None))
    found = {Path(path): score for path, score in scores.items() if path and Path(path).exists()}
    by_time = sorted(found, key=lambda path: (path.stat().st_mtime_ns, str(path)))
    settings = {name.lstrip("_"): getattr(callback, name) for name in _SETTINGS if hasattr(callback, name)}
    return [
        SavedCheckpoint(
            path=path,
            score=None if found[path] is None else float(found[path]),
            aliases=tuple(
                alias
                for alias, is_so in (("latest", path == by_time[-1]), ("best", bool(best) and path == Path(best)))
                if is_so
            ),
            saved_at=path.stat().st_mtime,
            settings=settings,
        )
        for path in by_time
    ]


class Checkpoints:
    """Records checkpoints, each state of a file once, with the aliases it has then: the newest `best` is the best.

    The metadata is a file of its own, `<stem>/metadata/metadata.yaml`. It lies in a temporary folder until it was read.
    """

    def __init__(self) -> None:
        self._recorded: dict[Path, float] = {}

    @never_raises  # a full disk, a file that another process removes: training, or what ended it, goes on
    def record(self, callback: Any, step: int | None) -> None:
        """Record what `callback` keeps and was not recorded yet."""
        for saved in self._new(callback):
            otel_ml.log_checkpoint(saved.path, name=saved.path.stem, aliases=saved.aliases, step=step)
            self._record_metadata(saved, step)

    @never_raises  # the next checkpoint is recorded all the same
    def _record_metadata(self, saved: SavedCheckpoint, step: int | None) -> None:
        import yaml

        folder = TemporaryFolder("checkpoint")
        file, name = folder.path / "metadata.yaml", f"{saved.path.stem}/metadata"
        file.write_text(yaml.safe_dump(_plain(saved.metadata), sort_keys=False), encoding="utf-8")
        otel_ml.log_artifact(file, name=name, type="checkpoint", aliases=saved.aliases, step=step)

    def _new(self, callback: Any) -> Iterator[SavedCheckpoint]:
        for saved in saved_checkpoints(callback):
            # `last.ckpt` keeps its name and gets other content.
            if self._recorded.get(saved.path) != saved.saved_at:
                self._recorded[saved.path] = saved.saved_at
                yield saved


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)

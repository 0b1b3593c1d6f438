"""Checkpoints of the Trainer, kept once the files of all ranks are there: nobody tells rank 0 that they are."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml.warn_once import say

__all__ = ["Checkpoints", "SavedCheckpoint"]

TIMEOUT_S = 5.0
"""At the end of training, for the files of ranks that are behind."""

PAUSE_S = 0.02


@dataclass(frozen=True)
class SavedCheckpoint:
    """A folder that rank 0 has saved its part of."""

    folder: Path
    step: int
    aliases: Sequence[str]
    ranks: int

    def missing(self) -> list[str]:
        """Return the files of ranks that are not there, or not whole: the random state is what a rank writes last."""
        if self.ranks == 1:
            return []
        names = [f"rng_state_{rank}.pth" for rank in range(self.ranks)]
        # torch.save() writes a zip file, whose table of contents comes last: one that is still being written has none.
        return [name for name in names if not zipfile.is_zipfile(self.folder / name)]


def _folder(args: Any, state: Any) -> Path:
    """Return where the Trainer has just saved: in a search each trial has a folder of its own."""
    name = f"checkpoint-{state.global_step}"
    usual = Path(args.output_dir, name)
    if not getattr(state, "is_hyper_param_search", False):
        return usual
    if state.trial_name:
        return Path(args.output_dir, state.trial_name, name)
    of_trials = Path(args.output_dir).glob(f"run-*/{name}")  # a number that no callback is told
    return max(of_trials, key=lambda folder: folder.stat().st_mtime_ns, default=usual)


class Checkpoints:
    """Records a checkpoint at the end of the next step, to which all ranks have come by then, or of training."""

    def __init__(self) -> None:
        self._waiting: SavedCheckpoint | None = None

    def saved(self, args: Any, state: Any) -> None:
        """Take what the Trainer of rank 0 has saved; that of a process alone is whole."""
        folder = _folder(args, state)
        if not folder.is_dir():
            say(
                "missing-artifact",
                f"{folder.name} is not kept: expected a folder in {args.output_dir!r}, where the Trainer saves. Record "
                "it with otel_ml.log_checkpoint().",
            )
            return
        best = state.best_model_checkpoint
        is_best = best is not None and Path(best) == folder
        # Without the optimizer's state no rank writes its random state, by which it is known to be done.
        ranks = 1 if getattr(args, "save_only_model", False) else args.world_size
        aliases = ("latest", "best") if is_best else ("latest",)
        self.record()  # the one before, where no step has ended since
        self._waiting = SavedCheckpoint(folder, state.global_step, aliases, ranks)
        if args.world_size == 1:
            self.record()

    def record(self) -> None:
        """Record what waits, as it is."""
        saved, self._waiting = self._waiting, None
        if saved is not None:
            otel_ml.log_checkpoint(saved.folder, step=saved.step, aliases=saved.aliases)

    def finish(self, timeout: float = TIMEOUT_S) -> None:
        """Record what waits once it is whole, or say what it lacks."""
        if self._waiting is None:
            return
        until = time.monotonic() + timeout
        while (missing := self._waiting.missing()) and time.monotonic() < until:
            time.sleep(PAUSE_S)
        if missing:
            say(
                "missing-artifact",
                f"{self._waiting.folder.name} is kept without {len(missing)} of {self._waiting.ranks} files of ranks: "
                f"{', '.join(missing[:3])} {'is' if len(missing) == 1 else 'are'} not in its folder on this host. "
                "Save to a file system that the hosts share.",
            )
        self.record()

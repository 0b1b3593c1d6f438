"""The file that watchdogs read: when the last checkpoint was complete, and of which step it is."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from otel_ml.warn_once import say

__all__ = ["write_checkpoint_status"]

_NAME = "latest_checkpoint_status.json"


def write_checkpoint_status(checkpoint_dir: str | os.PathLike[str], step: int) -> Path:
    """Write `latest_checkpoint_status.json` into the folder of all checkpoints; return its path.

    A reader finds the old content or the new one, never half of it. A disk that is full is reported, not raised.
    """
    path = Path(checkpoint_dir) / _NAME
    status = {"last_successful_ckpt_save_completion": time.time(), "last_checkpoint_step": int(step)}
    # Beside it, so that replace() is one rename; with the pid, as several processes of a job may write.
    unfinished = path.with_name(f".{_NAME}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(status) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        say("dump-not-written", f"{path} is not written: {error}. Make room, or choose another folder.")
    return path

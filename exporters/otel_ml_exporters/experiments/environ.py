"""Variables with which a run's own service was started: whoever finishes the run later tells its exporters the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from otel_ml.redaction import is_secret_name, redacted

__all__ = ["remember", "remembered", "used"]

_PREFIXES = ("MLFLOW_", "OTEL_ML_", "SWANLAB_", "TRACKIO_", "WANDB_")
_FILE = "environ.json"


def remember(state: Path, environ: Mapping[str, str]) -> None:
    """Write what exporters are told by variables to a run's `state/environ.json`; secrets are left out.

    A disk that takes no more is no reason not to serve the run.
    """
    kept = {name: value for name, value in sorted(environ.items()) if name.startswith(_PREFIXES)}
    kept = {name: value for name, value in kept.items() if not is_secret_name(name) and redacted(value) == value}
    with suppress(OSError):
        fresh = state / f"{_FILE}.new"
        fresh.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        fresh.replace(state / _FILE)


def remembered(state: Path) -> Mapping[str, str]:
    """Return what `remember()` wrote; nothing where it did not, or the file cannot be read."""
    try:
        found = json.loads((state / _FILE).read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


@contextmanager
def used(environ: Mapping[str, str]) -> Iterator[None]:
    """Let this process have these variables inside the block: backends' own libraries read them."""
    before = dict(os.environ)
    os.environ.update(environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)

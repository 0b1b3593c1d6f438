"""Which run has the id that the environment gives, where a program begins several: the first of all its starts.

::

    OTEL_ML_EXPERIMENT_ID=cv   fold-0 ── cv ──▶ fold-1 ── cv-5a31f0c2 ──▶ fold-2 ── cv-77e0b91d   killed
    started again                                                         fold-2 ── cv-77e0b91d   not cv

A program that begins the second one writes down in `OTEL_ML_DIR` which was the first. One that begins a single run
writes nothing: its name may be another one at each start, and the run is the same.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path

from otel_ml._internal.identity.runs_of_launch import as_meant
from otel_ml.config import Config
from otel_ml.wire.folder_ownership import read_ours
from otel_ml.wire.rendezvous import write_private

__all__ = ["Asked", "first_of_loop", "note_first_of_loop"]

Asked = tuple[str, str]
"""Experiment and name of a run."""


def first_of_loop(config: Config) -> Asked:
    """Return what the run with the id of `config` is called: as `config` is, unless an earlier start says otherwise."""
    asked = config.experiment, config.name
    if config.parent:  # the id is that of the run of its parent, whatever a child calls it
        return asked
    with suppress(OSError, ValueError, TypeError):
        experiment, name = json.loads(read_ours(_file_of(config)))
        # A start that calls the first run as before, but for a date or random digits, goes on with it under the new
        # name.
        if as_meant(experiment) != as_meant(config.experiment) or as_meant(name) != as_meant(config.name):
            return experiment, name
    return asked


def note_first_of_loop(config: Config, first: Asked) -> None:
    """Write down which run has the id: another one begins. A job that sends all it has elsewhere leaves no folder."""
    path = _file_of(config)
    if config.parent or path.exists() or (config.is_remote and not config.dir.is_dir()):
        return
    with suppress(OSError):  # then a start in the middle of the loop begins under the id
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, json.dumps(first))


def _file_of(config: Config) -> Path:
    digest = hashlib.sha256("\0".join((config.id, config.role)).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return config.dir / ".meeting" / f"{digest}.first.json"

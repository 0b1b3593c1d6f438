"""`wandb.Api`: a run whose folder is here is read from it; all else is asked of W&B's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from otel_ml._internal.lifecycle.read_run import metrics_file, name_of
from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.wandb.errors import CommError
from otel_ml.compat.wandb.start import state
from otel_ml.compat.wandb.stored_run import StoredRun
from otel_ml.exceptions import OtelMLError

__all__ = ["Api"]

_OF_PROCESS = ("entity", "group", "job_type", "notes", "tags", "url")


class Api:
    """W&B's `Api`, which also knows the runs below `OTEL_ML_DIR`, and needs no server for them."""

    def __init__(
        self, overrides: dict[str, Any] | None = None, timeout: int | None = None, api_key: str | None = None
    ) -> None:
        self._given = {"overrides": overrides, "timeout": timeout, "api_key": api_key}
        self._wandbs: Any = None

    def run(self, path: str = "") -> Any:
        """Return a run, by `entity/project/id`, `project/id` or its id.

        Raises:
            CommError: it is not here, and the package `wandb` is not installed.
        """
        found = _found(path)
        if found is None:
            try:
                wandbs = self._of_wandb()
            except AttributeError:
                sentence = f"wandb.Api() finds no run {path!r} below OTEL_ML_DIR, and W&B's needs the package 'wandb'."
                raise CommError(sentence) from None
            return wandbs.run(path)
        file, folder = found
        # The run of this process knows what its folder does not have: its address in W&B, entity, tags, notes.
        active = state.run
        if active is None or active.id != folder.name:
            return StoredRun(file, folder, name_of(folder), {})
        return StoredRun(file, folder, active.name, {name: getattr(active, name) for name in _OF_PROCESS})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a copy that is being made
            raise AttributeError(name)
        return getattr(self._of_wandb(), name)

    def _of_wandb(self) -> Any:
        """Return W&B's own.

        Raises:
            AttributeError: the package is not installed.
        """
        if self._wandbs is None:
            self._wandbs = name_of_the_original("wandb", "Api", is_of_the_server=True)(**self._given)
        return self._wandbs


def _found(path: str) -> tuple[Path, Path] | None:
    """Return the `metrics.jsonl` and the folder of a run by its id, in the project that is named; None of others."""
    # `entity/project/runs/id`, as an address has it, and `entity/project:id` are the same run.
    parts = [part for part in path.replace("/runs/", "/").replace(":", "/").split("/") if part.strip()]
    if not parts:
        return None
    *above, run_id = parts
    active = state.run
    is_active = active is not None and active.id == run_id and above[-1:] in ([], [active.project])
    try:
        # Of the active run the folder is known; otherwise the last two parts are project and id.
        file = metrics_file(active.sync_dir if active is not None and is_active else "/".join(parts[-2:]))
    except OtelMLError:
        return None
    # read() finds runs by other things than an id, such as `latest`; a run that is not of this id is another one.
    return next(((file, folder) for folder in file.parents[:2] if folder.name == run_id), None)

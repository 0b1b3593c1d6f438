"""`wandb.Settings`: what a program gives or knows of W&B's own processes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from otel_ml.compat.tracking.original_names import name_of_the_original

__all__ = ["Settings", "is_offline"]

_USUAL = {
    "_noop": False,
    "_offline": False,
    "mode": "online",
    "silent": False,
    **dict.fromkeys(("entity", "project", "run_group", "run_id", "run_job_type", "run_name", "run_notes", "run_tags")),
}
"""What W&B says of them where nobody gives them: programs ask for these most, also where its package is not there."""


def is_offline(mode: str) -> bool:
    """Whether W&B is not to be reached: `dryrun` is what it was once called."""
    return mode in {"offline", "dryrun"}


class Settings(SimpleNamespace):
    """Settings by name; those that name the run, and `mode`, are looked at.

    What is not given is what the package `wandb` says where it is installed, such as `base_url` and `wandb_dir`.
    """

    def __getattr__(self, name: str) -> Any:
        """Return the value of a setting that is not given.

        Raises:
            AttributeError: W&B has no such setting, or its package is not installed.
        """
        if name.startswith("__"):  # a copy that is being made
            raise AttributeError(name)
        given = vars(self)
        match name:
            case "_offline" if "mode" in given:
                return is_offline(given["mode"])
            case "_noop" if "mode" in given:
                return given["mode"] == "disabled"
            case _ if name in _USUAL:
                return _USUAL[name]
        # A new `Settings()` of W&B's, which has what its variables and files say.
        return getattr(name_of_the_original("wandb", "Settings", is_of_the_server=True)(), name)

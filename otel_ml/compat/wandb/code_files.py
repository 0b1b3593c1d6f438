"""`run.log_code()`: which files below a folder are the program's code, as an artifact."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.env import DIR

__all__ = ["Chooses", "code_of", "is_code", "is_of_a_run", "main_script"]

Chooses = Callable[[str, str], bool] | Callable[[str], bool]
"""Says of a path, and of the folder that was given, whether the file is one."""

_OF_RUNS = ("wandb", ".wandb")
_TYPE = "code"


def is_code(path: str) -> bool:
    """Whether W&B takes a file for code: Python, what it requires, and how it is put into a container."""
    name = os.path.basename(path)  # noqa: PTH119 (a text is asked for, of every file there is)
    return name.endswith(".py") or name == "requirements.txt" or name.startswith("Dockerfile")


def is_of_a_run(path: str, root: str) -> bool:
    """Whether a file is below a folder of W&B's runs, or of ours, which have copies of code."""
    # W&B's folder counts directly below `root` alone; ours wherever it is.
    first = os.path.relpath(path, root).partition(os.sep)[0]
    return first in _OF_RUNS or Path(path).is_relative_to(Path(DIR.read().value).absolute())


def code_of(project: str, root: Any, name: str | None, include: Chooses, exclude: Chooses) -> Artifact | None:
    """Return the code below `root` as an artifact; None where there is none, or where a filter fails, which is said."""
    artifact = Artifact(name or _usual_name(project), _TYPE)
    try:
        for path in () if root is None else _chosen(os.path.abspath(root), include, exclude):  # noqa: PTH100 (as text)
            artifact.add_file(path, os.path.relpath(path, root))
    except Exception as error:  # noqa: BLE001 (filters are the program's)
        not_kept("run.log_code()", f"{type(error).__name__}: {error}. No code is recorded.")
        return None
    return artifact if artifact.file_count else None


def main_script() -> Artifact | None:
    """Return the program's main script as an artifact, where it is a file."""
    # `-c` of `python -c`, and the empty text of an interpreter, do not name files.
    script = Path(sys.argv[0])
    if not script.is_file():
        return None
    artifact = Artifact("code", _TYPE)
    artifact.add_file(script, f"code/{script.name}")
    return artifact


def _usual_name(project: str) -> str:
    # W&B takes names of up to 128 characters.
    return re.sub(r"[^\w.-]", "_", f"source-{project}-{Path(sys.argv[0]).name}")[:128]


def _chosen(root: str, include: Chooses, exclude: Chooses) -> Iterator[str]:
    is_wanted, is_not = _of_both(include), _of_both(exclude)
    # Links to folders are not followed, as in W&B: one may lead back to where it is.
    for folder, _, files in os.walk(root):
        for path in (os.path.join(folder, file) for file in sorted(files)):  # noqa: PTH118 (a text is asked for)
            if is_wanted(path, root) and not is_not(path, root):
                yield path


def _of_both(chooses: Any) -> Callable[[str, str], bool]:
    """Return a filter that takes the folder, too."""
    # W&B takes filters of a path alone, too.
    return chooses if len(inspect.signature(chooses).parameters) == 2 else lambda path, _: chooses(path)

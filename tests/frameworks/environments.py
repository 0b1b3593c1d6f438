"""An environment that has a framework, and all that this one has: a framework's own requirements are gigabytes."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from tests.packaging.clean_environment import succeeded

__all__ = ["environment_with_only"]


def environment_with_only(packages: Sequence[str], folder: Path) -> Path:
    """Install these packages, without what they require, into an environment of their own; return its `python`.

    It finds all else among the packages of this environment, which has its own versions: a package stands before those.
    """
    succeeded([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--no-deps"]
    succeeded([*command, *packages], folder, TIMEOUT_S="600")
    here = sysconfig.get_path("purelib")
    there = succeeded([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip()
    Path(there, "those_of_the_tests.pth").write_text(f"{here}\n")
    return python

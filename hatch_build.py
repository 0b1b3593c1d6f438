"""Compile `native/` into `otel_ml/_native`. Where that is not possible otel_ml is installed without: it is Python too.

Also a program: `python hatch_build.py` compiles for this checkout, after a change of `native/`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
# Sums are those of the Python, bit by bit, whatever CFLAGS say.
FLAGS = ["-std=c11", "-O3", "-fno-fast-math", "-ffp-contract=off", "-fvisibility=hidden"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter"]


PURE = "OTEL_ML_PURE_WHEEL"
"""Set to `true`, the wheel is one for every interpreter: `make dist` adds it to those that have the compiled part."""


class NativeBuildHook(BuildHookInterface[Any]):
    """What hatchling calls before and after it puts a wheel together."""

    folder: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled module to the wheel, which is then of this interpreter and platform alone."""
        if os.environ.get(PURE) == "true":
            return
        try:
            if version == "editable":
                compile_in_place()
                return
            # Not in the source tree: it may be read-only, and in use by processes that run.
            self.folder = Path(tempfile.mkdtemp())
            module = compile_in(self.folder)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - each tool says in its own way that it cannot
            self.app.display_warning(without(error))
            return
        build_data["force_include"][str(module)] = f"otel_ml/{module.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel has by now."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


def without(error: BaseException) -> str:
    """Say why there is no compiled part, and what that costs. What the compiler said stands above."""
    why = str(error) or type(error).__name__
    if isinstance(error, subprocess.CalledProcessError):
        why = f"{error.cmd[0]} failed with exit status {error.returncode}"
    return f"otel_ml has no compiled part: {why}. It records the same without, and recording takes longer."


def compile_in(folder: Path) -> Path:
    """Compile; return the module, which is in `folder`."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or sys.implementation.name != "cpython":
        # An append of several items is one step under the GIL, and slots lie where CPython puts them.
        raise RuntimeError("it is for CPython with its GIL")
    from setuptools import Distribution, Extension

    sources = sorted(str(path) for path in (ROOT / "native").glob("*.c"))
    if not sources:
        raise FileNotFoundError(f"no C sources in {ROOT / 'native'}")
    extension = Extension("otel_ml._native", sources, extra_compile_args=FLAGS + WARNINGS, libraries=["m"])
    command = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(folder / "made"), str(folder)
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath("otel_ml._native"))


def compile_in_place() -> Path:
    """Compile for this checkout; where that fails no module of older sources stays in it."""
    place = ROOT / "otel_ml" / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        (ROOT / "build").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as folder:
            # In one step: a process that starts meanwhile finds the old one or the new one, whole.
            return compile_in(Path(folder)).replace(place)
    except BaseException:
        place.unlink(missing_ok=True)
        raise


if __name__ == "__main__":
    try:
        print(compile_in_place())  # noqa: T201
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        sys.exit(without(error))

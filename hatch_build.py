"""Compile `native/` into `otel_ml/_native`. Where that is not possible otel_ml is installed without it: it is Python too.

Also a program: `python hatch_build.py` compiles in place, after a change of `native/`.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent


class NativeBuildHook(BuildHookInterface):
    """What hatchling calls before it puts a wheel together."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled module to the wheel, which is then of this interpreter and platform alone."""
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return  # the buffer's appends are atomic under the GIL
        try:
            module = compiled()
        except Exception as error:  # noqa: BLE001 - no compiler, no headers: each says so in its own way
            self.app.display_warning(f"otel_ml is installed without its compiled part: {error}")
            return
        build_data["artifacts"].append(f"/{module.relative_to(ROOT).as_posix()}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compiled() -> Path:
    """Compile in place; return the module."""
    from setuptools import Distribution, Extension

    flags = (
        []
        if sys.platform == "win32"
        else [
            "-std=c11",
            "-O2",
            "-fvisibility=hidden",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
        ]
    )
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "native").glob("*.c"))
    headers = [str(path.relative_to(ROOT)) for path in (ROOT / "native").glob("*.h")]
    extension = Extension("otel_ml._native", sources, depends=headers, extra_compile_args=flags)
    distribution = Distribution({"ext_modules": [extension]})
    command = distribution.get_command_obj("build_ext")
    command.inplace = True
    command.build_temp = str(ROOT / "build" / "native")
    command.ensure_finalized()
    command.run()
    return ROOT / command.get_ext_fullpath("otel_ml._native")


if __name__ == "__main__":
    print(compiled())  # noqa: T201

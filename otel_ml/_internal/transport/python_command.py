"""How a Python of our own is started: beside a program that may have a `queue.py` or an `mlflow/` of its own."""

from __future__ import annotations

import sys

__all__ = ["python_command"]

_AS_MODULE = (
    "import sys; del sys.path[0]; import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def python_command(module: str, *arguments: str) -> list[str]:
    """Return what runs a module as `python -m` does, but without the working directory on `sys.path`.

    What is installed, or on PYTHONPATH, is found.
    """
    python = sys.executable or "python3"
    if sys.version_info >= (3, 11):
        return [python, "-P", "-m", module, *arguments]  # multiprocessing hands it on to its children
    return [python, "-c", _AS_MODULE, module, *arguments]

"""How a program left, as far as Python tells at its end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from otel_ml._internal.lifecycle.exit_code import ExitCode, status_of_error

WATCHED = """
import atexit, builtins, sys, threading
from otel_ml._internal.lifecycle.exit_code import ExitCode, status_of_error
code = ExitCode()
code.watch()
code.watch()

def tell():
    error = code.error
    said = getattr(error, "code", error)
    sys.stderr.flush()
    print(type(error).__name__, repr(said), status_of_error(error))

atexit.register(tell)

def leave():
    raise SystemExit(5)

"""


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("pass", "NoneType None finished"),
        ("sys.exit()", "SystemExit None finished"),
        ("sys.exit(0)", "SystemExit 0 finished"),
        ("sys.exit(3)", "SystemExit 3 failed"),
        ("sys.exit('no data')", "SystemExit 'no data' failed"),
        ("exit(4)", "SystemExit 4 failed"),
        ("exit(code=4)", "SystemExit 4 failed"),
        ("quit()", "SystemExit None finished"),
        ("raise SystemExit", "SystemExit None finished"),
        ("raise SystemExit()", "SystemExit None finished"),
        ("raise SystemExit(0)", "SystemExit 0 finished"),
        ("raise SystemExit(\n    7,\n)", "SystemExit 7 failed"),
        ("raise SystemExit(int('8'))", "SystemExit None finished"),
        ("leave()", "SystemExit '' failed"),
        ("1 / 0", "ZeroDivisionError ZeroDivisionError('division by zero') failed"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt KeyboardInterrupt() killed"),
        ("try:\n    sys.exit(3)\nexcept SystemExit:\n    pass", "NoneType None finished"),
        (
            "thread = threading.Thread(target=lambda: sys.exit(9)); thread.start(); thread.join(); leave()",
            "SystemExit '' failed",
        ),
        ("code.unwatch(); sys.exit(3)", "NoneType None finished"),
    ],
)
def test_a_program_leaves_as_it_says(tmp_path: Path, end: str, said: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(WATCHED + end + "\n")

    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == said


def test_what_it_has_wrapped_it_gives_back_but_not_what_others_have_wrapped_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = sys.exit
    monkeypatch.setattr(sys, "exit", before)  # put back at the end, whatever is left there
    code = ExitCode()
    code.watch()
    wrapped = sys.exit
    code.unwatch()
    given_back = sys.exit
    code.watch()
    others = lambda *_: None  # noqa: E731 (as a debugger does)
    sys.exit = others  # type: ignore[assignment]
    code.unwatch()

    assert wrapped is not before
    assert given_back is before
    assert sys.exit is others


class CancelledError(BaseException):
    """As asyncio and concurrent.futures have one each."""


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (None, "finished"),
        (GeneratorExit(), "finished"),
        (SystemExit(), "finished"),
        (SystemExit(False), "finished"),
        (SystemExit(1), "failed"),
        (SystemExit(0.0), "failed"),
        (SystemExit("0"), "failed"),
        (ValueError(), "failed"),
        (KeyboardInterrupt(), "killed"),
        (CancelledError(), "killed"),
    ],
)
def test_an_error_tells_how_a_run_ends(error: BaseException | None, status: str) -> None:
    assert status_of_error(error) == status

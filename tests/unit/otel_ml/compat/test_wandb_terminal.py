"""What `wandb.termlog()` and the like print is what W&B prints."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import pytest

from otel_ml.compat import wandb


def _lines(of: Any, mark: str) -> None:
    of.termlog("a\nb", newline=False)
    of.termlog()
    of.termwarn("first\nsecond")
    of.termerror("ends\n", prefix=False)
    of.termlog(mark)
    of.termlog(mark, repeat=False)
    of.termlog(mark, repeat=False)


def _printed(print_to: Callable[[Any, str], None], of: Any, capsys: pytest.CaptureFixture[str]) -> str:
    mark = secrets.token_hex()
    capsys.readouterr()
    print_to(of, mark)
    return capsys.readouterr().err.replace(mark, "once")


def test_lines_are_those_of_wandb(capsys: pytest.CaptureFixture[str]) -> None:
    import wandb as original
    from wandb.errors.term import termsetup

    # A run of W&B's in another test may have made it silent.
    termsetup(original.Settings(silent=False), None)
    assert _printed(_lines, wandb, capsys) == _printed(_lines, original, capsys)

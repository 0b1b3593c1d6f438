from __future__ import annotations

import re
import sys
from io import StringIO

import pytest

from otel_ml_service.cli.screen import screen


def test_in_a_pipe_one_long_name_does_not_push_the_figures_of_the_others_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen().table(["metric", "last"], [["loss", "0.5"], ["x" * 700, "1"]], right=["last"])

    header, short, long = capsys.readouterr().out.splitlines()
    assert header.split() == ["metric", "last"]
    assert short.split() == ["loss", "0.5"]
    assert len(header) == len(short) < 80
    assert long.split() == ["x" * 700, "1"]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return what a person sees."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue()).splitlines()


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal of 60 columns, in which this process prints from now on."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdout", shown)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    return shown


def test_what_does_not_fit_goes_on_below_its_own_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)

    screen().hanging("  lost: ", "a value of rank 3 was too late for its step, which had closed ten seconds before.")

    assert shown.lines() == [
        "  lost: a value of rank 3 was too late for its step, which",
        "        had closed ten seconds before.",
    ]


def test_a_pipe_has_it_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen().hanging("  lost: ", "word " * 40)

    assert capsys.readouterr().out == f"  lost: {'word ' * 40}\n"


def test_long_names_are_shortened_until_a_table_fits_the_widest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = terminal(monkeypatch)
    rows = [["a" * 40, "b" * 24, "1"], ["c", "d", "2"]]

    screen().table(["experiment", "run", "last"], rows, right=["last"], shortened=["experiment", "run"])

    header, first, second = shown.lines()
    assert max(map(len, (header, first, second))) <= 60
    experiment, run, last = first.split()
    assert (len(experiment), run, last) == (28, "b" * 24, "1")


def test_what_a_command_is_at_is_shown_as_soon_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = terminal(monkeypatch)
    monkeypatch.setattr(sys, "stderr", shown)

    with screen().working() as now:
        for what in ("reading calm-dune", "writing calm-dune"):
            now(what)
            assert what in shown.getvalue(), "and not when a clock ticks"

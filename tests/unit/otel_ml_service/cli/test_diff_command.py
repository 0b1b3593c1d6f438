"""`otel-ml diff`: what is printed of two runs."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from otel_ml_exporters.records import Params
from otel_ml_service.cli import main
from otel_ml_service.cli.diff_command import _cut, _part, _print, _unlike
from otel_ml_service.cli.screen import Screen
from otel_ml_service.why.comparison import Changed, Comparison, Difference
from tests.recorded_run import digits_records, write_run

NOTHING = Comparison(
    "a", "b", "cannot tell", ("B is as fast as A.", "It cannot be told why.", "No metric differs."), (), (), (), None,
    (), True, False, (), (), (),
)  # fmt: skip


def printed(found: Comparison, *, is_terminal: bool = False, width: int = 100) -> list[str]:
    text = io.StringIO()
    screen = Screen()
    screen.out = Console(
        file=text, width=width, force_terminal=is_terminal, color_system=None, highlight=False, soft_wrap=True
    )
    _print(screen, found, ["run one", "run two"])
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_of_runs_that_do_not_differ_the_sentences_and_their_names_are_printed() -> None:
    assert printed(NOTHING) == [
        "B is as fast as A.", "It cannot be told why.", "No metric differs.", "", "A is run one,", "B is run two",
    ]  # fmt: skip


def test_what_is_sure_to_differ_comes_first_and_what_is_not_known_is_a_dash() -> None:
    phases = (
        Difference("forward", 0.010, 0.011, 0.001, -0.001, 0.003, 9, 0, 9),
        Difference("backward", 0.020, 0.024, 0.004, 0.003, 0.005, 9, 0, 9),
        Difference("data", None, 0.002, 0.002, None, None, 1),
    )

    shown = printed(replace(NOTHING, phases=phases, metrics=(Difference("loss", 2.0, 1.5, -0.5, -0.6, -0.4, 9),)))

    assert [line.split() for line in shown[6:]] == [
        [],
        ["Where", "the", "time", "goes,", "steps", "0-9"],
        ["phase", "A", "B", "B", "-", "A", "95", "%", "between"],
        ["backward", "20", "ms", "24", "ms", "+4", "ms", "3", "ms", "and", "5", "ms"],
        ["forward", "10", "ms", "11", "ms", "+1", "ms", "-1", "ms", "and", "3", "ms"],
        ["data", "-", "2", "ms", "+2", "ms", "too", "few", "steps"],
        [],
        ["Metrics", "at", "equal", "steps"],
        ["metric", "A", "B", "B", "-", "A", "95", "%", "between"],
        ["loss", "2", "1.5", "-0.5", "-0.6", "and", "-0.4"],
    ]


@pytest.mark.parametrize(
    ("adds_up", "of_one_rank", "title"),
    [
        (True, False, "Where the time goes"),
        (True, True, "Where the time goes (of the rank that works longest in each)"),
        (False, False, "Timers (slowest rank of each; they do not add up)"),
    ],
)
def test_the_title_says_whose_times_these_are(adds_up: bool, of_one_rank: bool, title: str) -> None:
    phases = (Difference("forward", 0.010, 0.011, 0.001, None, None, 9, 3, 3),)

    shown = printed(replace(NOTHING, phases=phases, adds_up=adds_up, of_one_rank=of_one_rank))

    assert shown[7] == f"{title}, step 3"


def test_twelve_rows_are_printed_and_how_many_there_are_more() -> None:
    changed = tuple(Changed(f"p{number:02}", str(number), None) for number in range(14))
    metrics = tuple(Difference(f"m{number:02}", 1.0, 1.0, 0.0, None, None, 1) for number in range(13))

    shown = printed(replace(NOTHING, params=changed, metrics=metrics))

    assert [line.split() for line in shown if line.startswith("p")] == [
        [f"p{number:02}", str(number), "-"] for number in range(12)
    ]
    assert "… and 2 more (--json)" in shown
    assert sum(line.startswith(("m0", "m1")) for line in shown) == 12
    assert "… and 1 more (--json)" in shown
    assert not [line for line in printed(replace(NOTHING, params=changed[:12])) if "more (--json)" in line]


def test_long_values_show_where_they_differ_in_a_terminal_and_are_whole_for_a_program() -> None:
    command = "train.py " + "--flag " * 20
    changed = (Changed("command", f"{command}--lr 0.1 --layers 24", f"{command}--lr 0.2 --layers 24"),)

    [narrow] = [line for line in printed(replace(NOTHING, code=changed), is_terminal=True, width=60) if "lr" in line]
    [whole] = [line for line in printed(replace(NOTHING, code=changed), width=1000) if "lr" in line]

    assert len(narrow) <= 60
    assert "--lr 0.1 -" in narrow
    assert "--lr 0.2 -" in narrow
    assert whole.split("  ")[1:] == [f"{command}--lr 0.1 --layers 24", f"{command}--lr 0.2 --layers 24"]


def test_who_was_slow_in_one_of_the_runs_is_a_list() -> None:
    shown = printed(replace(NOTHING, findings=("A: rank 2 slow.", "B: " + "word " * 20)))

    assert shown[6:9] == ["", "Slow and silent ranks", "- A: rank 2 slow."]
    assert shown[9].startswith("- B: word")
    assert shown[10].startswith("  word")


@pytest.mark.parametrize(
    ("a", "b", "most", "shown"),
    [
        ("abc", "abd", 16, ("abc", "abd")),
        ("x" * 30, "x" * 29 + "y", 10, ("…" + "x" * 9, "…" + "x" * 8 + "y")),
        ("a" + "x" * 30, "b" + "x" * 30, 10, ("a" + "x" * 8 + "…", "b" + "x" * 8 + "…")),
        ("x" * 20, "x" * 40, 10, ("…" + "x" * 9, "…" + "x" * 8 + "…")),
    ],
)
def test_of_two_long_values_the_part_that_differs_is_shown(a: str, b: str, most: int, shown: Sequence[str]) -> None:
    assert _unlike(a, b, most) == shown


def test_a_part_of_a_text_has_marks_where_something_is_left_out() -> None:
    assert [_part("0123456789", begin, 6) for begin in (0, 1, 3, 4, 9)] == [
        "01234…", "…2345…", "…4567…", "…56789", "…56789",
    ]  # fmt: skip
    assert _part("012345", 3, 6) == "012345"
    assert (_cut("01234", 5), _cut("012345", 5)) == ("01234", "…2345")


def test_two_stored_runs_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    for run_id, rate in (("01abc", 0.1), ("02abc", 0.2)):
        write_run(tmp_path, run_id, [*digits_records(steps=3), Params(1000, 1000.0, {"lr": rate})])

    assert main(["diff", "01abc", "02abc"]) == 0
    shown = capsys.readouterr().out
    assert main(["diff", "01abc", "02abc", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert "A is digits/01abc," in shown or "A is 01abc," in shown
    assert (found["a"], found["b"]) == ("01abc", "02abc")
    assert found["params"] == [{"name": "lr", "a": "0.1", "b": "0.2"}]
    assert found["sentences"][1] in " ".join(shown.split())

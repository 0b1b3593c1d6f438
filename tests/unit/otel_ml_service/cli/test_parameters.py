"""What arguments mean that several commands share, and how a shell completes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from otel_ml_service.cli import main
from otel_ml_service.cli.parameters import EXPORTERS, METRIC, RUN, STEPS, dir_option, run_argument
from tests.recorded_run import digits_records, write_run


def completed(kind: click.ParamType, incomplete: str, **params: Any) -> list[str]:
    context = click.Context(click.Command("any"))
    context.params.update(params)
    return [item.value for item in kind.shell_complete(context, click.Option(["--x"]), incomplete)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [("5", (5, 5)), ("48-52", (48, 52)), ("48..52", (48, 52)), (" 48 – 52 ", (48, 52)), ("7-7", (7, 7)), ("0", (0, 0))],
)
def test_steps_are_one_or_the_first_and_the_last(text: str, steps: tuple[int, int]) -> None:
    assert STEPS.convert(text, None, None) == steps
    assert STEPS.convert(steps, None, None) == steps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("52-48", "'52-48' ends before it begins. Write 48-52."),
        ("-5", "'-5' names no steps. Expected one, as in 5, or the first and the last, as in 48-52."),
        ("5-", "'5-' names no steps."),
        ("all", "'all' names no steps."),
    ],
)
def test_what_names_no_steps_is_refused(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        STEPS.convert(text, None, None)

    assert error.value.message.startswith(said)


def test_exporters_are_separated_by_commas() -> None:
    assert EXPORTERS.convert("jsonl, tensorboard", None, None) == ("jsonl", "tensorboard")
    assert EXPORTERS.convert(("a", "b"), None, None) == ("a", "b")
    with pytest.raises(click.BadParameter) as error:
        EXPORTERS.convert(" , ", None, None)
    assert error.value.message == "' , ' names no exporter. Write for example: jsonl,tensorboard"


def test_the_last_exporter_of_a_list_is_completed() -> None:
    assert completed(EXPORTERS, "json") == ["jsonl"]
    assert completed(EXPORTERS, "jsonl,tensor") == ["jsonl,tensorboard"]
    assert completed(EXPORTERS, "nothing") == []
    assert len(completed(EXPORTERS, "")) > 5
    assert completed(EXPORTERS, "") == sorted(completed(EXPORTERS, ""))


def test_runs_and_metrics_are_completed_from_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3))
    write_run(tmp_path, "02abc", digits_records(steps=3))

    assert sorted(completed(RUN, "0", base=tmp_path)) == ["01abc", "02abc"]
    assert completed(RUN, "02", base=str(tmp_path)) == ["02abc"]
    assert set(completed(METRIC, "time/s", base=tmp_path)) == {
        "time/step", "time/sync", "time/sync/mean", "time/sync/argmax",
    }  # fmt: skip
    assert completed(METRIC, "loss", base=tmp_path, run="01abc") == ["loss"]
    assert completed(METRIC, "loss", base=tmp_path, run="03xyz") == []
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    assert completed(RUN, "01") == ["01abc"]


@pytest.mark.parametrize(
    ("arguments", "run"), [(["7"], "7"), ([], "latest")], ids=["the one that is named", "else the newest"]
)
def test_a_run_that_need_not_be_named_is_the_newest(
    arguments: list[str], run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "runs"))

    @click.command()
    @run_argument(required=False)
    @dir_option
    def command(run: str, base: Path) -> tuple[str, Path]:
        return run, base

    assert command.main(arguments, standalone_mode=False) == (run, tmp_path / "runs")


def test_a_folder_that_is_named_and_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gc", "--dir", str(tmp_path / "typo"), "--keep", "1"]) == 2
    assert f"there is no folder {str(tmp_path / 'typo')!r}" in capsys.readouterr().err
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "none"))
    assert main(["gc", "--keep", "1"]) == 0

from __future__ import annotations

import json
import math
import os
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml.exceptions import OtelMLError
from tests.hooks import before


def write(folder: Path, *rows: dict[str, Any], tail: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows) + tail)
    return folder


def row(seq: int, step: int, attempt: int = 0, **values: float) -> dict[str, Any]:
    return {"seq": seq, "role": "trainer", "axis": "step", "step": step, "attempt": attempt, "values": values}


@pytest.mark.feature("N32", "yes", "`otel_ml.read(run)`")
def test_steps_and_values_by_name(tmp_path: Path) -> None:
    folder = write(
        tmp_path, row(1, 0, loss=3.0), {"seq": 2, "type": "params", "params": {}}, row(3, 1, loss=2.0, lr=0.1)
    )

    assert otel_ml.read(folder) == {"loss": ([0, 1], [3.0, 2.0]), "lr": ([1], [0.1])}
    assert otel_ml.read(folder / "metrics.jsonl") == otel_ml.read(str(folder))


def test_an_amendment_supersedes_and_a_newer_attempt_wins(tmp_path: Path) -> None:
    amended = {**row(3, 0, loss=2.5), "amendment": True}
    folder = write(tmp_path, row(1, 0, loss=3.0), row(2, 1, loss=2.0), amended, row(4, 1, attempt=1, loss=1.0))

    assert otel_ml.read(folder) == {"loss": ([0, 1], [2.5, 1.0])}


def test_axes_that_have_one_name_are_series_of_their_own(tmp_path: Path) -> None:
    """A thread records while the model is loaded, which no step counts, and goes on during training."""

    def on(axis: str, seq: int, step: int, **values: float) -> dict[str, Any]:
        return {**row(seq, step, **values), "axis": axis}

    folder = write(
        tmp_path,
        on("time", 1, 0, memory=1.0),
        on("time", 2, 1, memory=2.0, disk=5.0),
        row(3, 0, memory=7.0),
        on("eval", 4, 3, **{"eval/accuracy": 0.5}),
        row(5, 1, **{"memory": 8.0, "eval/accuracy": 0.6}),
        {**on("time", 6, 1, memory=2.5), "amendment": True},
    )

    assert otel_ml.read(folder) == {
        "disk": ([1], [5.0]),
        "eval/accuracy": ([1], [0.6]),
        "eval/accuracy/over_eval": ([3], [0.5]),
        "memory": ([0, 1], [7.0, 8.0]),
        "memory/over_time": ([0, 1], [1.0, 2.5]),
    }


def test_non_finite_values_are_values(tmp_path: Path) -> None:
    folder = write(tmp_path, row(1, 0, loss=math.nan), row(2, 1, loss=-math.inf))

    steps, values = otel_ml.read(folder)["loss"]

    assert steps == [0, 1]
    assert math.isnan(values[0])
    assert values[1] == -math.inf


def test_a_line_that_is_being_written_is_not_read_yet(tmp_path: Path) -> None:
    folder = write(tmp_path, row(1, 0, loss=3.0), tail='{"seq": 2, "step"')

    assert otel_ml.read(folder) == {"loss": ([0], [3.0])}


def test_a_run_is_found_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    write(tmp_path / "digits" / "01JX", row(1, 0, loss=3.0))

    assert otel_ml.read("01JX") == {"loss": ([0], [3.0])}


def test_latest_is_the_run_that_was_written_to_last_whatever_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    for at, (experiment, run) in enumerate([("digits", "01JX"), ("words", "c5028a7a"), ("digits", "007f00")], start=1):
        written = write(tmp_path / experiment / run, row(1, 0, loss=at)) / "metrics.jsonl"
        os.utime(written, (at, at))

    assert otel_ml.read("latest") == {"loss": ([0], [3.0])}


def test_a_run_is_found_while_another_one_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    write(tmp_path / "kept" / "01kept", row(1, 0, loss=3.0))
    gone = write(tmp_path / "gone" / "01gone", row(1, 0, loss=2.0)).parent

    with before("os.scandir", lambda path: str(path) == str(gone), lambda: shutil.rmtree(gone)):
        found = otel_ml.read("latest")

    assert not gone.exists()
    assert found == {"loss": ([0], [3.0])}


def test_a_run_is_found_by_its_name_the_newest_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    for at, (experiment, run) in enumerate([("digits", "01JX"), ("words", "c502"), ("digits", "my-run")], start=1):
        written = write(tmp_path / experiment / run, row(1, 0, loss=at)) / "metrics.jsonl"
        os.utime(written, (at, at))
    for experiment, run, name in [
        ("digits", "01JX", "my-run"),
        ("words", "c502", "other"),
        ("digits", "my-run", "other"),
    ]:
        state = tmp_path / experiment / run / "state"
        state.mkdir()
        (state / "name").write_text(name)

    assert otel_ml.read("other") == otel_ml.read("digits/other") == {"loss": ([0], [3.0])}
    assert otel_ml.read("words/other") == {"loss": ([0], [2.0])}
    assert otel_ml.read("my-run") == otel_ml.read("digits/my-run") == {"loss": ([0], [3.0])}, "an id before a name"
    assert otel_ml.read("words/c502") == {"loss": ([0], [2.0])}


def test_a_folder_that_is_called_latest_is_that_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "digits" / "01JX", row(1, 0, loss=3.0))
    write(tmp_path / "latest", row(1, 0, loss=4.0))

    assert otel_ml.read("latest") == {"loss": ([0], [4.0])}


def test_a_run_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(otel_ml.OtelMLError, match=r"looked for .*metrics\.jsonl"):
        otel_ml.read(tmp_path)


def test_names_are_found_as_they_were_written(tmp_path: Path) -> None:
    folder = write(tmp_path, row(1, 0, **{"损失/训练 (%)": 3.0}))

    assert otel_ml.read(folder)["损失/训练 (%)"] == ([0], [3.0])


def test_a_name_that_is_published_otherwise_is_found_by_what_was_written(tmp_path: Path) -> None:
    folder = write(tmp_path, row(1, 0, **{"two\\nlines": 1.0, "mfu___-8ae227af": 0.5}))

    found = otel_ml.read(folder)

    assert found["two\nlines"] == found["two\\nlines"] == ([0], [1.0])
    assert found["mfu(%)"] == found.get("mfu(%)") == found["mfu___-8ae227af"]
    assert "mfu(%)" in found
    assert "mfu" not in found
    assert found.get("mfu") is None
    assert sorted(found) == ["mfu___-8ae227af", "two\\nlines"]
    with pytest.raises(KeyError, match=r"no metric 'mfu'. Here are: mfu___-8ae227af, two"):
        found["mfu"]


def test_what_is_not_written_yet_is_said_to_be_on_its_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path))
    empty = otel_ml.read(write(tmp_path / "empty"))
    run = otel_ml.init("exp", id="one", exporters="none")
    otel_ml.shutdown()

    with pytest.raises(KeyError, match=r"no metric 'loss'. Here are: none yet; its steps may still be on their way. "):
        empty["loss"]
    with pytest.raises(OtelMLError, match=r"run 'one' yet: .*metrics.jsonl' is not there. .* a moment later"):
        otel_ml.read(run)


def test_a_run_that_went_on_after_names_stayed_as_they_were_written_has_one_series(tmp_path: Path) -> None:
    older = {"training_loss-f372ad93": 3.0, "mfu___-8ae227af": 0.5, "plain": 1.0}
    folder = write(tmp_path, row(1, 0, **older), row(2, 1, **older), row(3, 1, **{"training loss": 2.0, "plain": 1.0}))

    assert otel_ml.read(folder) == {
        "mfu___-8ae227af": ([0, 1], [0.5, 0.5]),
        "plain": ([0, 1], [1.0, 1.0]),
        "training loss": ([0, 1], [3.0, 2.0]),
    }


def test_some_metrics_are_read_as_with_all_others(tmp_path: Path) -> None:
    rows = [
        {
            "seq": 1,
            "role": "trainer",
            "axis": "step",
            "step": 0,
            "attempt": 0,
            "time": 1.0,
            "values": {"loss": 1.0, "a": 2},
        },
        {"seq": 2, "role": "trainer", "axis": "step", "step": 1, "attempt": 0, "time": 1.0, "values": {"loss": 3.0}},
        {"seq": 3, "role": "trainer", "axis": "step", "step": 1, "attempt": 1, "time": 1.0, "values": {"loss": 4.0}},
        {"seq": 4, "role": "trainer", "axis": "eval", "step": 1, "attempt": 0, "time": 1.0, "values": {"loss": 5.0}},
        {"seq": 5, "role": "trainer", "axis": "step", "step": 0, "attempt": 0, "time": 1.0, "values": {"a": 6.0}},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))

    every = otel_ml.read(tmp_path)

    assert every["loss"] == ([0, 1], [1.0, 4.0])
    assert otel_ml.read(tmp_path, "loss") == {name: every[name] for name in ("loss", "loss/over_eval")}
    assert otel_ml.read(tmp_path, "a", "none") == {"a": ([0], [6.0])}


def test_to_read_one_of_many_metrics_holds_that_one_in_memory(tmp_path: Path) -> None:
    values = ",".join(f'"layer/{number}":{number}.5' for number in range(100))
    head = '{{"seq":{0},"role":"trainer","axis":"step","step":{0},"attempt":0,"time":1.0,"values":{{'
    lines = (head.format(step) + values + "}}\n" for step in range(500))
    (tmp_path / "metrics.jsonl").write_text("".join(lines))

    def peak(*names: str) -> int:
        tracemalloc.start()
        try:
            found = otel_ml.read(tmp_path, *names)
            assert found["layer/7"] == (list(range(500)), [7.5] * 500)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak("layer/7") * 10 < peak()

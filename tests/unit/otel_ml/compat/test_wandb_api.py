"""`wandb.Api()`: what a script reads back of runs whose folders are here."""

from __future__ import annotations

import inspect
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import otel_ml
from otel_ml.compat import wandb
from otel_ml.compat.wandb.public_api import _found
from otel_ml.compat.wandb.stored_run import StoredRun
from tests.e2e.jobs import environment
from tests.waiting import eventually

ID = f"r{os.getpid()}"
"""Of the run: tests that run beside these record another one."""

SCRIPT = """
import pathlib, sys
from otel_ml.compat import wandb

config = {"lr": 0.1, "model": {"width": 3}}
with wandb.init(project="pages", id=sys.argv[1], name="first try", config=config, tags=["a"], mode="offline") as run:
    wandb.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    for step in range(6):
        run.log({"loss": 1 / (1 + step), **({"sample": f"text {step}"} if step % 2 else {})})
    for epoch in range(2):
        run.log({"epoch": epoch, "val/acc": 0.5 + epoch / 4})
    run.log({"loss": float("nan")})
    for name in ("f.txt", "g.md"):
        pathlib.Path(name).write_text(f"{name}!")
        run.save(name)
    data = wandb.Artifact("data", type="dataset")
    data.add_file("f.txt")
    run.log_artifact(data)
    run.summary["best"] = 7
    run.summary["verdict"] = {"by": "hand", "parts": [1, "two"]}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that another process has recorded."""
    folder = tmp_path_factory.mktemp("recorded")
    variables = environment(OTEL_ML_DIR=folder / "runs", OTEL_ML_EXPORTERS="jsonl", OTEL_ML_EXIT_WAIT=60)
    subprocess.run([sys.executable, "-c", SCRIPT, ID], check=True, timeout=120, cwd=folder, env=variables)
    return folder / "runs"


@pytest.fixture(autouse=True)
def stored(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for runs where the one is."""
    monkeypatch.setenv("OTEL_ML_DIR", str(runs))


@pytest.mark.parametrize("path", ["team/pages/{}", "pages/{}", "/team/pages/runs/{}", "{}", "team/pages:{}"])
def test_a_run_is_found_as_wandb_names_it(path: str) -> None:
    run = wandb.Api().run(path.format(ID))

    assert (run.id, run.name, run.project, run.state) == (ID, "first try", "pages", "finished")


def test_a_run_says_what_was_recorded() -> None:
    run = wandb.Api(timeout=19).run(f"pages/{ID}")

    assert (run.config["lr"], run.config["model"]) == (0.1, {"width": 3})
    assert (run.summary["best"], run.summary["val/acc"], run.summary["sample"]) == (7.0, 0.75, "text 5")
    assert (run.summary["verdict.by"], run.summary["verdict.parts"]) == ("hand", [1, "two"])
    assert math.isnan(run.summary["loss"])
    assert run.lastHistoryStep == 8
    assert run.metadata["python"] == platform.python_version()
    created = datetime.fromisoformat(run.created_at.replace("Z", "+00:00")).timestamp()
    assert time.time() - 3600 < created <= time.time()


def test_its_history_has_every_row() -> None:
    run = wandb.Api().run(f"pages/{ID}")

    rows = list(run.scan_history(keys=["_step", "loss"]))
    assert [(row["_step"], row["loss"]) for row in rows[:-1]] == [(step, 1 / (1 + step)) for step in range(6)]
    assert math.isnan(rows[-1]["loss"])
    assert [row["_step"] for row in run.scan_history(["_step"], min_step=2, max_step=4)] == [2, 3]
    assert [(row["epoch"], row["val/acc"]) for row in run.scan_history(["epoch", "val/acc"])] == [(0, 0.5), (1, 0.75)]
    assert [row["sample"] for row in run.history(pandas=False, keys=["sample"])] == ["text 1", "text 3", "text 5"]
    table = run.history(samples=3, keys=["loss"])
    assert list(table["_step"]) == [0, 2, 4]
    assert list(table.columns) == ["_step", "loss"]


def test_its_files_and_artifacts_are_there() -> None:
    run = wandb.Api().run(f"pages/{ID}")

    assert sorted((file.name, file.size) for file in run.files()) == [("f.txt", 6), ("g.md", 5)]
    assert [file.name for file in run.files(pattern="%.md")] == ["g.md"]
    with run.file("f.txt").download("there") as file:
        assert file.read() == "f.txt!"
    with pytest.raises(ValueError, match="already"):
        run.file("f.txt").download("there")
    [data] = [one for one in run.logged_artifacts() if one.type == "dataset"]
    assert (data.name, [file.name for file in data.files()]) == ("data", ["f.txt"])
    assert Path(data.download(), "f.txt").read_text() == "f.txt!"
    with pytest.raises(ValueError, match="no file 'none'"):
        run.file("none")


ANY_RUN = """
{"seq":1,"role":"","axis":"step","step":5,"attempt":1,"time":3.0,"values":{"loss":1.0,"acc":0.5}}
{"seq":2,"role":"","axis":"step","step":5,"attempt":0,"time":1.0,"values":{"loss":2.0,"late":7.0},"amendment":true}
{"seq":3,"role":"","axis":"step","step":6,"attempt":1,"time":4.0,"values":{"loss":3.0,"otel_ml/lag":9.0}}
{"seq":4,"role":"","axis":"step","step":6,"attempt":1,"time":4.0,"values":{"loss":NaN},"amendment":true}
{"seq":5,"type":"artifact","time":4.0,"name":"../out.txt","artifact_type":"file","path_in":"out.txt",
"local":"LOCAL","uri":"","size":1,"sha256":"","step":null,"aliases":[]}
{"seq":6,"type":"artifact","time":4.0,"name":"a[1].txt","artifact_type":"file","path_in":"a[1].txt",
"local":"LOCAL","uri":"","size":1,"sha256":"","step":null,"aliases":[]}
{"seq":7,"type":"artifact","time":4.0,"name":"tor
""".replace(',\n"local"', ',"local"')


@pytest.fixture
def redone(runs: Path, tmp_path: Path) -> Iterator[wandb.Api]:
    """Write down a run with a step that was done again, a correction of its first attempt, and odd files."""
    folder = runs / "pages" / "redone"
    folder.mkdir()
    (tmp_path / "there").write_text("x")
    text = ANY_RUN.strip().replace("LOCAL", str(tmp_path / "there"))
    (folder / "metrics.jsonl").write_text(text)
    yield wandb.Api().run("pages/redone")
    shutil.rmtree(folder)


def test_of_a_step_that_was_done_again_and_corrected_the_history_has_what_read_has(redone: Any, runs: Path) -> None:
    rows = {row["_step"]: row for row in redone.scan_history()}
    read = otel_ml.read(runs / "pages" / "redone", "loss", "acc", "late")

    for name, (steps, values) in read.items():
        for step, value in zip(steps, values, strict=True):
            assert rows[step][name] == pytest.approx(value, nan_ok=True), name
    assert (rows[5]["loss"], sorted(rows)) == (1.0, [5, 6])
    assert redone.state == "running", "nobody has written how it ended"


def test_no_file_of_a_run_is_copied_out_of_the_folder_that_was_asked_for(redone: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="leads out of"):
        redone.file("../out.txt").download(str(tmp_path / "here"))

    assert not (tmp_path / "out.txt").exists()
    assert [file.name for file in redone.files(pattern="a[_].txt")] == ["a[1].txt"]


@pytest.mark.parametrize("method", ["history", "scan_history", "files", "file", "logged_artifacts"])
def test_a_run_is_asked_as_wandbs_is(method: str) -> None:
    from wandb.apis.public import Run

    theirs = inspect.signature(getattr(Run, method)).parameters.values()
    ours = inspect.signature(getattr(StoredRun, method)).parameters.values()

    assert [(one.name, one.default) for one in ours] == [(one.name, one.default) for one in theirs]


def test_the_run_of_this_process_is_not_one_of_that_id_in_another_project(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("OTEL_ML_EXPORTERS", "jsonl")
    with wandb.init(project="mine", id="1") as run:
        run.log({"loss": 0.5})
        otel_ml.flush(60)
        there = eventually(lambda: _found("mine/1"))
        assert there is not None
        assert _found("team/mine/1") == _found("1") == there
        assert _found("other/1") is None


def test_what_only_a_server_has_is_said() -> None:
    run = wandb.Api().run(f"pages/{ID}")

    with pytest.raises(AttributeError, match="has no 'sweep'"):
        _ = run.sweep
    assert run.update() is None


def test_any_other_run_and_method_is_that_of_wandbs_own_api(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb as original

    asked: list[object] = []

    class Server:
        def __init__(self, **given: object) -> None:
            asked.append(given)

        def run(self, path: str) -> str:
            return f"W&B's {path}"

        def runs(self, path: str) -> list[str]:
            return [path]

    monkeypatch.setattr(original, "Api", Server)
    api = wandb.Api({"entity": "team"}, timeout=5)

    assert api.run("team/pages/other") == "W&B's team/pages/other"
    assert api.run(f"team/elsewhere/{ID}") == f"W&B's team/elsewhere/{ID}"
    assert api.run("first try") == "W&B's first try"
    assert api.run("latest") == "W&B's latest"
    assert api.runs("team/pages") == ["team/pages"]
    assert asked == [{"overrides": {"entity": "team"}, "timeout": 5, "api_key": None}]

"""What a person sees: the real TensorBoard, asked over HTTP, with both of its loaders."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode

import pytest

from otel_ml_exporters.backends.tensorboard import TensorBoardExporter
from otel_ml_exporters.records import Params, Record, RunStatus, Summary
from tests.contract.stored import environment
from tests.contract.stream import AT, every_kind, png, run_info, step, wav
from tests.waiting import eventually

DEADLINE = 60.0
LOADERS = {"fast": [], "python": ["--load_fast=false"]}
STATUSES = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]
SESSIONS = {"allowedStatuses": STATUSES, "colParams": [], "startIndex": 0, "sliceSize": 10, "includeMetrics": True}


class App:
    """A running `tensorboard`, asked for JSON."""

    def __init__(self, logdir: Path, *options: str) -> None:
        command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            str(logdir),
            "--host",
            "127.0.0.1",
            "--port",
            "0",
        ]
        self.process = subprocess.Popen(
            [*command, "--reload_interval", "1", *options], env=environment(), stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        said = next(line for line in self.process.stderr if "http://" in line)
        self._url = re.search(r"http://\S+:\d+/", said)[0]
        self._drain = threading.Thread(target=self.process.stderr.read)
        self._drain.start()

    def close(self) -> None:
        self.process.terminate()
        self._drain.join()
        self.process.wait()
        self.process.stderr.close()

    def ask(self, path: str, body: object = None, **query: str) -> object:
        return json.loads(self.fetch(f"{path}?{urlencode(query)}" if query else path, body))

    def fetch(self, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}data/{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return answer.read()

    def has_loaded(self) -> bool:
        """Return whether it shows the last of each event file; that a run is listed says nothing of what it has."""
        try:
            corrected, timed = self.scalars("amended", "loss"), self.scalars("time", "loss")
            groups = self.ask("plugin/hparams/session_groups", SESSIONS).get("sessionGroups", [])
        except URLError:
            return False
        statuses = [session["status"] for group in groups for session in group["sessions"]]
        return bool(corrected and timed and statuses == ["STATUS_SUCCESS"])

    def scalars(self, run: str, tag: str) -> list[tuple[int, object]]:
        return [(at, value) for _, at, value in self.ask("plugin/scalars/scalars", run=run, tag=tag)]


def records(run_dir: Path) -> list[Record]:
    bands = [step(12 + at, at, {"loss": 1 / at, "loss/min": 0.5, "loss/max": 2.0}) for at in (3, 4, 5, 6)]
    return [
        *every_kind(run_dir)[:-1],
        *bands,
        step(20, 3, {"loss": 8.0}, amendment=True),
        step(21, 200, {"eval/accuracy": 0.5, "grad": math.nan}, axis="eval"),
        step(22, 4, {"loss": -1.0}, attempt=1),
        step(23, 1, {"loss": 3.0}, axis="time"),
        Summary(24, AT + 24, {"test/accuracy": 0.75}),
        Params(25, AT + 25, {"late": "yes"}),
        RunStatus(26, AT + 26, "finished"),
    ]


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, App]]:
    run_dir = tmp_path_factory.mktemp("run")
    exporter = TensorBoardExporter()
    exporter.start(run_info(run_dir, "01J"))
    exporter.export(records(run_dir))
    exporter.shutdown(1.0, None)
    running = {name: App(run_dir / "tensorboard", *options) for name, options in LOADERS.items()}
    for app in running.values():
        eventually(app.has_loaded, timeout=DEADLINE)
    yield running
    for app in running.values():
        app.close()


@pytest.fixture(params=LOADERS)
def app(apps: dict[str, App], request: pytest.FixtureRequest) -> App:
    return apps[request.param]


def test_scalars_are_shown_with_nan_and_each_axis_by_its_own_steps(app: App) -> None:
    assert app.scalars(".", "loss/min") == [(at, 0.5) for at in (3, 4, 5, 6)]
    assert app.scalars(".", "eval/accuracy") == [(200, 0.5)]
    assert app.scalars(".", "grad") == [(200, "NaN")]
    assert app.scalars("time", "loss") == [(1, 3.0)]


def test_a_correction_is_shown_in_its_own_run_and_a_new_attempt_from_its_first_step(app: App) -> None:
    loss = app.scalars(".", "loss")

    assert app.scalars("amended", "loss") == [(3, 8.0)]
    assert (3, pytest.approx(1 / 3)) in loss
    assert loss[-1] == (4, -1.0)


def test_text_table_image_audio_and_histogram_are_shown(app: App) -> None:
    [text] = app.ask("plugin/text/text", run=".", tag="samples")
    [table] = app.ask("plugin/text/text", run=".", tag="wrong")
    [image] = app.ask("plugin/images/images", run=".", tag="digit", sample="0")
    [audio] = app.ask("plugin/audio/audio", run=".", tag="speech", sample="0")
    [histogram] = app.ask("plugin/histograms/histograms", run=".", tag="weights")

    assert (text["step"], "<em>generated</em> text, with ünïcode" in text["text"]) == (1, True)
    assert "<td>a|b</td>" in table["text"]
    assert table["text"].count("<table>") == 1
    assert app.fetch(f"plugin/images/individualImage?{image['query']}") == png()
    assert app.fetch(f"plugin/audio/individualAudio?{audio['query']}") == wav()
    assert (image["step"], audio["step"]) == (1, 1)
    assert histogram[1:] == [1, [[-1.0, 0.0, 3.0], [0.0, 0.1, 0.0], [0.1, 2.5, 7.0]]]


def test_a_metric_with_min_and_max_has_a_chart_with_a_band(app: App) -> None:
    layout = app.ask("plugin/custom_scalars/layout")

    band = {"value": "loss", "lower": "loss/min", "upper": "loss/max"}
    chart = {"title": "loss", "margin": {"series": [band]}}
    groups = [(group["title"], chart["title"]) for group in layout["category"] for chart in group["chart"]]
    assert groups == [("loss", "loss"), ("eval", "eval/accuracy"), ("grad", "grad")]
    assert layout["category"][0]["chart"] == [chart]


@pytest.mark.feature("R8", "yes", "in TensorBoard's own tab too")
def test_the_hparams_tab_has_the_parameters_the_summary_and_the_end(app: App) -> None:
    experiment = app.ask("plugin/hparams/experiment", {"includeMetrics": True})
    [group] = app.ask("plugin/hparams/session_groups", SESSIONS)["sessionGroups"]

    assert [metric["displayName"] for metric in experiment["metricInfos"]] == ["test/accuracy"]
    assert {param["name"]: param["type"] for param in experiment["hparamInfos"]} == {
        "amp": "DATA_TYPE_BOOL",
        "epochs": "DATA_TYPE_FLOAT64",
        "late": "DATA_TYPE_STRING",
        "net": "DATA_TYPE_STRING",
        "optimizer.betas": "DATA_TYPE_STRING",
        "optimizer.lr": "DATA_TYPE_FLOAT64",
    }
    assert group["name"] == "01J"
    assert [metric["value"] for metric in group["metricValues"]] == [0.75]
    assert [session["status"] for session in group["sessions"]] == ["STATUS_SUCCESS"]

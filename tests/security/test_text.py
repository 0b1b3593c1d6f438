"""Text of others: it is shown, stored and served as what it is, and does nothing."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from otel_ml._internal.console import Console
from otel_ml._internal.lifecycle.run import Run
from otel_ml._internal.run_scope import Scope
from otel_ml.wire.published_name import MAX_LENGTH
from otel_ml_exporters import Exporter, StepRecord
from otel_ml_exporters.backends.console import ConsoleExporter
from otel_ml_exporters.backends.jsonl import JsonlExporter
from otel_ml_exporters.backends.tensorboard import TensorBoardExporter
from otel_ml_exporters.records import RunInfo, Text
from otel_ml_exporters.testing import RecordingExporter
from otel_ml_service.live_runs.run_log import LogLines
from tests.contract.readers.tensorboard import read as read_tensorboard
from tests.integration.conftest import Bench
from tests.integration.worker_process import environment
from tests.otlp import FakeWriter
from tests.waiting import eventually

HOSTILE = [
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred",
    "one\ntwo\rthree\x85four\u2028five",
    "\u202eexe.\u2066gnp\u2069",
    "\x9b31m\x00\x08\x7f",
    "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>",
    '"} 1\nevil_total{a="b',
    "[bold]x[/bold][link=http://evil]y[/wrong]",
    "{{7*7}}${7*7}%s%n",
    "=cmd|' /C calc'!A0",
]
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def short(text: str) -> str:
    return ascii(text)[:20]


def hostile_run(bench: Bench, text: str, *exporters: tuple[str, Exporter]) -> None:
    """Put `text` wherever a sender may put text, and let the run end."""
    recording = RecordingExporter()
    makers = {"recording": lambda: recording, **{name: (lambda made=made: made) for name, made in exporters}}
    sender = bench.sender(bench.service(makers))
    extra = {"ml.experiment.name": text, "ml.run.name": text, "ml.tags": [text], "ml.notes": text, "host.name": text}
    writer = FakeWriter(role=text, extra=extra)
    for step in range(3):
        values = {text: 0.5, f"{text}/min": 0.25, f"{text}/max": 1.0}
        assert sender.send("metrics", writer.step(step, values, axis=text)).status == 200
    for name, body in (("ml.text", text), ("ml.params", {text: text}), (text, text), ("ml.summary", {text: 1.0})):
        assert sender.send("logs", writer.event(name, body, {"ml.name": text})).status == 200
    sender.send("traces", writer.span(text, 1))
    wrong = FakeWriter(extra={"ml.rank": text}).step(1, {"a": 1.0})
    assert sender.send("metrics", wrong).status == 200
    sender.send("logs", writer.goodbye())
    eventually(lambda: recording.is_closed)
    bench.services[0].stop(20.0)


@pytest.mark.parametrize("text", HOSTILE, ids=short)
def test_files_of_a_run_have_one_record_a_line_and_only_published_names(bench: Bench, text: str) -> None:
    hostile_run(bench, text, ("jsonl", JsonlExporter()), ("tensorboard", TensorBoardExporter()))

    [jsonl] = bench.folder.rglob("metrics.jsonl")
    rows = [json.loads(line) for line in jsonl.read_text().splitlines()]
    names = {name for row in rows if "values" in row for name in row["values"]}
    seqs = {row["seq"] for row in (*rows, *spans(jsonl))}
    assert seqs == set(range(1, max(seqs) + 1))
    assert len(names) > 3
    assert not any(CONTROLS.search(name) for name in names), names
    assert max(map(len, names)) <= MAX_LENGTH
    assert all(re.fullmatch(r"[A-Za-z0-9_.\-]+", path.name) for path in bench.folder.rglob("*")), list(
        bench.folder.rglob("*")
    )
    assert read_tensorboard(jsonl.parent, "run-1")["scalars"]


def spans(jsonl: Path) -> list[dict[str, int]]:
    path = jsonl.with_name("spans.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("text", HOSTILE, ids=short)
def test_metrics_for_prometheus_have_no_line_of_a_senders_making(bench: Bench, text: str) -> None:
    sender = bench.sender(bench.service())
    for writer in (FakeWriter(experiment=text), FakeWriter(extra={"ml.rank": text})):
        assert sender.send("metrics", writer.step(1, {text: 1.0})).status == 200
    eventually(lambda: bench.services[0].runs())

    lines = sender.request("GET", "/metrics").body.decode().split("\n")

    sample = re.compile(r'otel_ml_\w+(\{(\w+="([^"\\]|\\[\\"n])*",?)+\})? [0-9.eE+-]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines if line), lines
    assert len([line for line in lines if "experiment=" in line or "run=" in line]) > 1, lines


@pytest.mark.parametrize("style", ["lines", "table"])
@pytest.mark.parametrize("text", HOSTILE, ids=short)
def test_the_console_shows_it_and_obeys_none_of_it(tmp_path: Path, style: str, text: str) -> None:
    stream = io.StringIO()
    exporter = ConsoleExporter(stream=stream, style=style, width=200)  # type: ignore[arg-type]
    exporter.start(RunInfo(id=text, experiment=text, name=text, dir=tmp_path, started_at=0.0))
    exporter.export([StepRecord(1, text, text, 1, 0, 0.0, {"loss": 1.0}), Text(2, 0.0, text, text, "step", 1)])
    exporter.force_flush(1.0)
    exporter.shutdown(1.0, "finished")

    assert CONTROLS.search(stream.getvalue()) is None, stream.getvalue()
    assert "loss" in stream.getvalue()


@pytest.mark.parametrize("text", HOSTILE, ids=short)
def test_what_a_worker_prints_is_one_line_and_obeys_none_of_it(capsys: pytest.CaptureFixture[str], text: str) -> None:
    Console(is_quiet=False).line(f"run {text}")

    shown = capsys.readouterr().err
    assert CONTROLS.search(shown) is None
    lines = shown.splitlines()
    assert lines
    assert all(line.startswith("otel_ml: ") for line in lines)


@pytest.mark.parametrize("text", HOSTILE, ids=short)
def test_a_log_line_is_one_line_in_tracebacks_too(text: str) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogLines())
    logger = logging.getLogger("a test of log lines")
    logger.propagate = False
    logger.handlers = [handler]

    logger.warning("Run %s", text)
    first = stream.getvalue()
    logger.error("Failed.", exc_info=ValueError(text))

    assert first.count("\n") == 1
    assert CONTROLS.search(stream.getvalue()) is None


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        assert {name for name, _ in attrs} <= {"href", "target"}


@pytest.mark.parametrize("text", [*HOSTILE, "javascript:alert(1)", 'https://a" onclick="alert(1)'], ids=short)
def test_a_notebook_shows_it_and_runs_none_of_it(text: str) -> None:
    status = {"exporters": {text: {"url": text}}}
    run = Run(text, text, text, Path(text), text, 0, None, lambda: status, Scope())  # type: ignore[arg-type]

    page = Page()
    page.feed(run._repr_html_())

    assert set(page.tags) <= {"div", "b", "br", "code", "ul", "li", "a"}
    assert all(link.startswith("https://") for link in page.links)
    assert CONTROLS.search(run._repr_html_()) is None


COMMANDS = [
    ["runs"],
    ["show", "latest"],
    ["tail", "latest", "--no-follow"],
    ["show", "latest", "--csv"],
    ["why", "latest"],
]


@pytest.fixture(scope="module", params=HOSTILE[:4], ids=short)
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bench = Bench(tmp_path_factory.mktemp("stored") / "runs")
    hostile_run(bench, request.param, ("jsonl", JsonlExporter()))
    for sender in bench.senders:
        sender.close()
    return bench.folder


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_show_a_hostile_run_and_obey_none_of_it(stored: Path, tmp_path: Path, command: list[str]) -> None:
    environ = environment(tmp_path, {"OTEL_ML_DIR": str(stored)})

    done = subprocess.run(
        [sys.executable, "-m", "otel_ml_service", *command], env=environ, capture_output=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert CONTROLS.search(done.stdout.decode()) is None, done.stdout
    assert done.stdout

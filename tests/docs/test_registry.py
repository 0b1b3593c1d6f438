"""The registry in `semconv/` follows its language, has each name of the code, and each that a job sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from otel_ml.wire import attributes as wire
from tests.docs.registry import definitions, files, type_of
from tests.docs.sent import attributes_in, contradictions
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer, attributes_of, events_of, otlp_server
from tests.waiting import eventually

SCHEMA = Path(__file__).with_name("schemas") / "semconv.schema.v2.json"
"""Of open-telemetry/weaver, which publishes it for the version 2 of the language (Apache-2.0)."""

OURS = ("ml.", "otel_ml.")

NO_NAMES_ON_THE_WIRE = {"HIDDEN_SUMMARIES_PARAM", "STEP_METRICS_PARAM", "SESSIONS_PARAM"}
"""Constants of `wire.attributes` that are parameters of a run."""

JOB = """
    import otel_ml

    with otel_ml.init("registry", id="one", tags=["a"], notes="b", params={"lr": 0.1}, topology={"dp": (0, 1)}) as job:
        otel_ml.define_metric("spread", reduce="std")
        for step in otel_ml.steps(range(3)):
            with otel_ml.timed("forward", kind="work"):
                made = otel_ml.context(version=step)
                otel_ml.log({"loss": 0.5, "spread": 1.0})
                otel_ml.log({"weighted": 0.5}, weight=2.0)
            otel_ml.consumed([made], version=step)
        otel_ml.set_step(3)
        otel_ml.consumed([made], version=3)
        otel_ml.log_text("samples", "text")
        otel_ml.log_table("table", ["a"], [[1]])
        job.summary({"best": 1.0})
    """


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_the_registry_follows_the_language_of_semantic_conventions(path: Path) -> None:
    schema = json.loads(SCHEMA.read_text())

    assert [error.message for error in Draft202012Validator(schema).iter_errors(yaml.safe_load(path.read_text()))] == []


def test_what_refers_to_an_attribute_finds_it() -> None:
    for kind in ("metrics", "events", "spans"):
        for name, one in definitions(kind).items():
            assert [found["ref"] for found in one["attributes"] if type_of(found["ref"]) is None] == [], name


def test_each_name_of_the_code_is_in_the_registry() -> None:
    known = {name for kind in ("attributes", "metrics", "events") for name in definitions(kind)}
    names = {
        value.rstrip(".")
        for constant, value in vars(wire).items()
        if isinstance(value, str) and constant.isupper() and constant not in NO_NAMES_ON_THE_WIRE
    }

    assert sorted(name for name in names if name.startswith(OURS) and name not in known) == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtlpServer]:
    """Return what took everything that a job sent."""
    folder = tmp_path_factory.mktemp("registry")
    with otlp_server() as running:
        run(JOB, environment(folder, variables(running)), folder)
        eventually(lambda: running.events("ml.writer.end"))
        yield running


def test_what_a_job_sends_is_what_the_registry_says(server: OtlpServer) -> None:
    messages = [message for _, _, message in server.requests]

    assert (
        contradictions(messages, metrics={"loss", "spread", "weighted"}, timers={"forward"}, labels={"trainer"}) == []
    )


def test_the_registered_names_that_only_some_jobs_send_are_sent_by_this_one(server: OtlpServer) -> None:
    sent = {one.key for _, _, message in server.requests for one in attributes_in(message)}

    assert {
        "ml.step",
        "ml.m2",
        "ml.wsum",
        "ml.timer.level",
        "ml.consumed",
        "otel_ml.overhead",
        "ml.topology.dp",
    } <= sent


def test_each_metric_event_and_span_of_the_protocol_that_a_job_sends_is_registered(server: OtlpServer) -> None:
    metrics = {point.name for name in definitions("metrics") for point in server.points(name)}
    events = {event.name for path, _, message in server.requests if path == "/v1/logs" for event in events_of(message)}
    own = {span.name for span, _ in server.spans() if "ml.timer.level" not in attributes_of(span.attributes)}

    assert metrics == set(definitions("metrics"))
    assert {"ml.params", "ml.text", "ml.table", "ml.summary", "ml.writer.end"} <= events <= set(definitions("events"))
    assert (
        own == {"produced", "consumed"} == {name.removeprefix("otel_ml.") for name in definitions("spans")} - {"timer"}
    )

"""Spans of a job are in a real Jaeger what they are in the run, also where it came later and the service was killed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.collector.pipeline import Service, experiment_of, training
from tests.e2e.jobs import environment, finished, reach
from tests.traces.jaeger import Jaeger
from tests.traces.job import ROLES, STEPS, go_on, job
from tests.traces.stored import Seen, as_stored, of_otlp

pytestmark = [pytest.mark.e2e, pytest.mark.full, pytest.mark.timeout(600)]

WARNINGS = "@jaeger@warnings"


class Traced(NamedTuple):
    """A run whose job is over, and the Jaeger that has its spans.

    Attributes:
        arrived: span id → how often Jaeger has it.
    """

    jaeger: Jaeger
    stored: Mapping[str, Seen]
    arrived: Mapping[str, int]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    """Disturb a job: the service is killed before Jaeger is there, and when it is; in the end all is sent again."""
    folder = tmp_path_factory.mktemp("traced")
    experiment, jaeger = experiment_of(folder), Jaeger(folder)
    with ExitStack() as stack:
        service = Service(folder, "jsonl,traces", OTEL_ML_TRACES_ENDPOINT=jaeger.otlp)
        stack.enter_context(service)
        commands = job(folder, service.endpoint, OTEL_ML_EXPERIMENT_ID=experiment, OTEL_ML_FLUSH_INTERVAL=200)
        with training(commands, folder) as trainer:
            reach(trainer, STEPS // 4)
            service.kill()
            reach(trainer, STEPS // 2 - 1)
            service.start()
            stack.enter_context(jaeger)
            go_on(folder)
            reach(trainer, STEPS * 3 // 4)
            service.kill()
            service.start()
        service.wait_for_the_end_of(experiment)
        service.stop()
        stored = as_stored(service.run_of(experiment))
        send_again(experiment, service.runs, jaeger)
        # First of all: the store in memory gives away what it has, and whoever looks at it changes that.
        raw = jaeger.spans({span.trace_id for span in stored.values()}, raw=True)
        yield Traced(jaeger, stored, Counter(span["spanId"] for _, span in raw))


def send_again(run: str, runs: Path, jaeger: Jaeger) -> None:
    command = [sys.executable, "-m", "otel_ml_service", "replay", run, "--to", "traces", "--dir", runs]
    finished(command, environment(OTEL_ML_TRACES_ENDPOINT=jaeger.otlp), runs)


@pytest.mark.feature("R21", "better", "spans of all processes go to any OTLP backend, also one that was away")
def test_every_span_is_in_jaeger_once_as_it_is_in_the_run(traced: Traced) -> None:
    found = [of_otlp(*pair) for pair in traced.jaeger.spans(traced.jaeger.trace_ids())]
    warned = {span.span_id for span in found if span.attributes.pop(WARNINGS, None)}

    assert {span.span_id: span for span in found} == {of: as_shown(span) for of, span in traced.stored.items()}
    assert len(found) == len(traced.stored)
    assert warned == {of for of, span in traced.stored.items() if span.start_ns == span.end_ns}


def as_shown(span: Seen) -> Seen:
    """Return a span as Jaeger has it: no duration is a negative one for it, of which it warns, and makes it 1 ns."""
    return span._replace(end_ns=max(span.end_ns, span.start_ns + 1))


def test_what_is_sent_twice_is_shown_once(traced: Traced) -> None:
    assert traced.arrived.keys() == traced.stored.keys()
    assert min(traced.arrived.values()) >= 2

    shown = traced.jaeger.spans({span.trace_id for span in traced.stored.values()})
    assert sorted(span["spanId"] for _, span in shown) == sorted(traced.stored)


def test_the_job_had_all_that_spans_may_have(traced: Traced) -> None:
    names = Counter((span.service, span.name) for span in traced.stored.values())
    of_steps = {("generator", "sample"), ("generator", "decode"), ("generator", "produced")} | {
        ("trainer", name) for name in ("score", "train", "forward", "backward", "publish")
    }
    assert {which: names[which] for which in of_steps} == {which: ROLES[which[0]] * STEPS for which in of_steps}
    assert names["trainer", "save"] == ROLES["trainer"] * STEPS // 8

    links = Counter(span.name for span in traced.stored.values() for _ in span.links)
    assert links == {"train": 4 * STEPS, "backward": 2 * STEPS, "publish": 2 * STEPS}
    failed = Counter(span.name for span in traced.stored.values() if span.status == "error")
    assert failed == {"publish": 2 * STEPS // 5, "save": 2 * STEPS // 8}
    parents = {span.name for span in traced.stored.values() if span.parent_id and is_elsewhere(span, traced.stored)}
    assert parents == {"score"}


def is_elsewhere(span: Seen, every: Mapping[str, Seen]) -> bool:
    """Whether its parent is of another process."""
    parent = every[span.parent_id]
    return (parent.service, parent.rank) != (span.service, span.rank)


def test_a_role_is_a_service_and_its_page_finds_the_spans_of_a_step_by_their_tag(traced: Traced) -> None:
    assert traced.jaeger.services() == set(ROLES)

    for role in ROLES:
        shown = traced.jaeger.found(role, {"ml.step": "31"})
        found = {
            (span["spanID"], trace["processes"][span["processID"]]["serviceName"], span["startTime"], span["duration"])
            for trace in shown
            for span in trace["spans"]
        }
        assert {one for one in found if one[1] == role} == {
            (span.span_id, role, span.start_ns // 1000, (span.end_ns - span.start_ns) // 1000)  # its microseconds
            for span in traced.stored.values()
            if span.service == role and span.attributes["ml.step"] == 31
        }

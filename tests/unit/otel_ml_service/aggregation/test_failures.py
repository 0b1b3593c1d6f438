"""What writers failed with: a text of each, and a sentence for the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from otel_ml_exporters.records import Text
from otel_ml_service.aggregation.observation import Event, Observation
from otel_ml_service.stored_runs.failure import failure_of
from tests.strategies import Rank, Service

TRACE = """Traceback (most recent call last):
  File "/job/train.py", line 88, in step
    loss.backward()
  File "/opt/lib/python3.11/site-packages/torch/_tensor.py", line 648, in backward
    torch.autograd.backward(
RuntimeError: no memory
"""


def failed(rank: Rank, step: int | None, message: str = "no memory", **more: str) -> Sequence[Observation]:
    [event] = rank.event("exception", None, step, status="failed")
    assert isinstance(event, Event)
    said = {"exception.type": "RuntimeError", "exception.message": message, "exception.stacktrace": TRACE, **more}
    return [replace(event, attributes={**event.attributes, **said})]


def test_what_a_rank_failed_with_is_a_text_of_its_own_with_its_traceback() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]

    service.take(failed(ranks[1], 412), failed(ranks[0], 413, "timed out"))

    texts = [record for record in service.records if isinstance(record, Text)]
    assert [(text.name, text.axis, text.step) for text in texts] == [
        ("otel_ml/failure/rank_1", "step", 412),
        ("otel_ml/failure", "step", 413),
    ]
    # Markdown: TensorBoard and Trackio render it.
    assert texts[0].text.splitlines()[:3] == ["RuntimeError: no memory", "", "    Traceback (most recent call last):"]


def test_the_first_rank_that_is_heard_to_have_failed_is_said_for_the_job_and_no_other() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]

    service.take(failed(ranks[1], 412))
    service.restart()
    service.take(failed(ranks[0], 413, "timed out"))

    [notice] = service.notices
    sentence = "Rank 1 failed at step 412: RuntimeError: no memory (train.py:88 in step)."
    assert notice == f"{sentence} (otel-ml explain rank-failed)"


def test_of_a_process_alone_nothing_is_said_which_python_has_printed() -> None:
    service = Service()

    service.take(failed(Rank(0, world_size=1), 3))

    assert service.notices == []


def test_an_exception_that_ended_nothing_is_an_event_as_any_other() -> None:
    """OpenTelemetry's SDKs send those that a program has handled."""
    service, rank = Service(), Rank(0, world_size=2)
    [event] = rank.event("exception", None, 3)
    assert isinstance(event, Event)

    service.take([replace(event, attributes={"exception.type": "KeyError"})])

    [text] = [record for record in service.records if isinstance(record, Text)]
    assert (text.name, text.text) == ("exception", '{"exception.type": "KeyError"}')
    assert failure_of(text) is None
    assert service.notices == []


@pytest.mark.parametrize("role", ["trainer", "generator", "a/b"])
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("axis", ["step", "rollout"])
def test_a_text_tells_who_failed_where_and_with_what(role: str, rank: int, axis: str) -> None:
    service, writer = Service(), Rank(rank, role=role, world_size=4)
    [event] = failed(writer, 412, message="no memory:\n\nbuy some")
    assert isinstance(event, Event)

    service.take([replace(event, axis=axis)])

    [text] = [record for record in service.records if isinstance(record, Text)]
    failure = failure_of(text)
    assert failure is not None
    assert (failure.role, failure.rank, failure.axis, failure.step) == (role, rank, axis, 412)
    assert (failure.what, failure.place) == ("RuntimeError: no memory:", "train.py:88 in step")
    assert failure.time == event.time_ns / 1e9

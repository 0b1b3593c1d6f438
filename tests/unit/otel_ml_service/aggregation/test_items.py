"""Log records and spans: not reduced, each once, under names that tell the rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from otel_ml_exporters.records import Artifact, HistogramValue, Image, Params, Span, SpanBatch, Summary, Table, Text
from otel_ml_exporters.span_lines import SpanLines
from otel_ml_service.aggregation.observation import Spans
from otel_ml_service.aggregation.settings import EngineSettings
from tests.strategies import Rank, Service
from tests.unit.otel_ml_service.aggregation.lives import life, live_on


def test_rank_0_keeps_the_name_and_others_append_theirs() -> None:
    service, ranks = Service(), [Rank(rank) for rank in range(2)]

    service.take(*[rank.event("ml.text", "hello", 3, name="sample") for rank in ranks])

    texts = [record for record in service.records if isinstance(record, Text)]
    assert [(text.name, text.step, text.text) for text in texts] == [
        ("sample", 3, "hello"),
        ("sample/rank_1", 3, "hello"),
    ]


def test_the_same_event_again_changes_nothing_even_after_a_restart() -> None:
    service, rank = Service(), Rank(0)
    event = rank.event("ml.text", "hello", 3, name="sample")

    service.take(event, event)
    service.restart()
    service.take(event)

    assert len(service.records) == 1


def test_nested_parameters_that_come_one_after_the_other_are_sent_with_those_before() -> None:
    """A backend replaces a mapping by the next one of its name, as `wandb.config.update()` does."""
    service, rank = Service(), Rank(0)
    service.take(rank.event("ml.params", {"model": {"layers": 2, "norm": {"eps": 1e-5}}, "seed": 1}))
    service.take(rank.event("ml.params", {"model": {"norm": {"bias": True}}}))
    service.restart()
    service.take(rank.event("ml.params", {"model": {"layers": 4}, "lr": 0.1}))

    sent = [record.params for record in service.records if isinstance(record, Params)]
    norm = {"eps": 1e-5, "bias": True}
    assert sent[1:] == [
        {"model": {"layers": 2, "norm": norm}},
        {"model": {"layers": 4, "norm": norm}, "lr": 0.1},
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_value_takes_the_place_of_a_group_and_a_group_that_of_a_value(restarts: bool) -> None:
    service, rank = Service(), Rank(0)
    for params in ({"a": {"b": 1}, "c": 0}, {"a": 2}, {"a": {"c": {"d": 3}}}, {"a": {"c": 4}}, {"a": {"e": 5}}):
        service.take(rank.event("ml.params", params))
        if restarts:
            service.restart()

    sent = [record.params for record in service.records if isinstance(record, Params)]
    assert [params["a"] for params in sent] == [{"b": 1}, 2, {"c": {"d": 3}}, {"c": 4}, {"c": 4, "e": 5}]
    assert service.notices == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_a_value_and_a_group_of_one_name_the_lowest_ranks_is_kept_and_it_is_said(order: tuple[int, int]) -> None:
    service, ranks = Service(), [Rank(0), Rank(1)]
    said = [{"opt": {"lr": 0.1, "eps": 1}}, {"opt": "adam"}]
    for rank in order:
        service.take(ranks[rank].event("ml.params", said[rank]))

    assert [record.params for record in service.records if isinstance(record, Params)][-1] == said[0]
    [sentence] = service.notices
    assert "a group of others is kept" in sentence
    assert '"adam" on rank 1' in sentence


def test_a_rank_that_changes_a_parameter_of_its_own_disagrees_with_nobody() -> None:
    service, ranks = Service(), [Rank(rank) for rank in range(2)]

    for lr in (0.1, 0.2, 0.3):
        service.take(ranks[0].event("ml.params", {"lr": lr}))
    assert service.notices == []
    service.take(ranks[1].event("ml.params", {"lr": 0.4}))

    assert len(service.notices) == 1


def test_of_conflicting_parameters_the_lowest_rank_wins_in_any_order_and_it_is_said_once() -> None:
    service, ranks = Service(), [Rank(rank) for rank in range(3)]

    for rank, seed in ((ranks[1], 1), (ranks[0], 0), (ranks[2], 2), (ranks[0], 0)):
        service.take(rank.event("ml.params", {"optimizer": {"lr": 0.1, "seed": seed}}))

    params = [record.params for record in service.records if isinstance(record, Params)]
    assert params == [{"optimizer": {"lr": 0.1, "seed": 1}}, {"optimizer": {"lr": 0.1, "seed": 0}}]
    assert len(service.notices) == 2
    assert "'optimizer.seed' is 0 on rank 0" in service.notices[0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("ended", [True, False])
def test_parameters_that_a_restart_changes_are_no_conflict_between_ranks(order: tuple[int, int], ended: bool) -> None:
    service, first = Service(), life("a", boot="b")
    for rank in first:
        service.take(rank.event("ml.params", {"lr": 0.1, "seed": 1}))
    live_on(service, first, 0)
    if ended:
        service.take(*[rank.bye() for rank in first])
    service.restart()
    second = life("b", start=service.now + 1, boot="b")

    for rank in order:
        service.take(second[rank].event("ml.params", {"lr": 0.2, "seed": 10 + rank}))

    params = [record.params for record in service.records if isinstance(record, Params)]
    assert params[1]["lr"] == 0.2
    assert params[-1]["seed"] == 10
    assert [sentence for sentence in service.notices if "'lr'" in sentence] == []
    (conflict,) = [sentence for sentence in service.notices if "'seed'" in sentence]
    assert "is 10 on rank 0 of role 'trainer' and 11 on rank 1" in conflict


def test_an_inline_artifact_hands_its_content_over() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.event("ml.artifact", b"weights", 3, name="model", **{"artifact.path_in": "model.pt"}))

    (artifact,) = service.records
    assert isinstance(artifact, Artifact)
    assert (artifact.name, artifact.path_in, artifact.size, artifact.local) == ("model", "model.pt", 7, None)
    assert service.outcomes[-1].files == {artifact.seq: b"weights"}


def test_an_artifact_keeps_what_its_author_says_of_it() -> None:
    service, rank = Service(), Rank(0)
    said = {"artifact.sha256": "ab12", "artifact.aliases": ["best", "v2"], "artifact.type": "model"}

    service.take(rank.event("ml.artifact", b"weights", 3, name="model", **said))
    service.take(rank.event("ml.artifact", b"weights", 4, name="other"))

    full, bare = [record for record in service.records if isinstance(record, Artifact)]
    assert (full.sha256, full.aliases, full.type) == ("ab12", ("best", "v2"), "model")
    assert (bare.sha256, bare.aliases, bare.type, bare.path_in) == (None, (), "file", "other")


def test_an_empty_file_is_a_file_and_a_large_one_is_a_record_once_it_was_looked_for() -> None:
    service, rank = Service(), Rank(0)

    for size in (0, 5 * 2**20):
        service.take(rank.event("ml.artifact", b"", 3, name="model", **{"artifact.size": size}))
    [empty] = service.records
    [named] = [file for outcome in service.outcomes for file in outcome.named]
    service.engine.found(named.artifact)
    service.settle()

    large = service.records[-1]
    assert isinstance(empty, Artifact)
    assert isinstance(large, Artifact)
    assert (empty.size, large.size) == (0, 5 * 2**20)
    assert (empty.seq, large.seq) == (1, 2)
    files = {seq: content for outcome in service.outcomes for seq, content in outcome.files.items()}
    assert files == {empty.seq: b""}


def test_tables_images_and_summaries_become_records() -> None:
    service, rank = Service(), Rank(0)

    service.take(
        rank.event("ml.table", {"columns": ["a", "b"], "rows": [[1, "x"]]}, 1, name="t"),
        rank.event("ml.image", b"png", 1, name="i", width=2, height=3),
        rank.event("ml.summary", {"test/accuracy": 0.5}),
    )

    table, image, summary = service.records
    assert isinstance(table, Table)
    assert (table.columns, table.rows) == (("a", "b"), ((1, "x"),))
    assert isinstance(image, Image)
    assert (image.png, image.width, image.height) == (b"png", 2, 3)
    assert isinstance(summary, Summary)
    assert summary.values == {"test/accuracy": 0.5}


def test_an_event_that_cannot_be_read_is_said_and_the_next_one_is_taken() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.event("ml.table", "no table", 1, name="t"), rank.event("ml.text", "fine", 1, name="s"))

    assert [type(record) for record in service.records] == [Text]
    assert "ml.table" in service.notices[0]


def test_a_notice_is_said_once_for_the_job() -> None:
    service = Service()

    service.take(*[Rank(rank).event("ml.notice", "loss was None") for rank in range(8)])

    assert service.notices == ["loss was None"]


def test_a_users_own_event_is_kept_as_text() -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.event("checkpoint saved", {"path": "a.pt"}, 4))

    (text,) = service.records
    assert isinstance(text, Text)
    assert (text.name.startswith("checkpoint"), text.text, text.step) == (True, '{"path": "a.pt"}', 4)


def span(number: int, **attributes: object) -> Span:
    return Span("a" * 32, f"{number:016x}", None, "forward", 0, 1, "trainer", 0, "step", 1, attributes)  # type: ignore[arg-type]


def test_spans_are_delivered_once_ours_and_others() -> None:
    service, rank = Service(), Rank(0)
    ours = [span(number, **{"ml.timer.level": 1}) for number in range(100, 110)]
    others = [span(number) for number in (7, 7000, 7)]

    service.take([Spans(rank.writer, tuple(ours)), Spans(rank.writer, tuple(others))])
    service.restart()
    service.take([Spans(rank.writer, tuple(ours)), Spans(rank.writer, tuple(others))])

    batches = [record for record in service.records if isinstance(record, SpanBatch)]
    assert sum(len(batch.spans) for batch in batches) == 12


@pytest.mark.parametrize(
    ("sent", "delivered"),
    [
        ([[3, 2, 1], [6, 5, 4], [3, 2, 1]], [3, 2, 1, 6, 5, 4]),  # those inside of others end first
        ([[2, 3], [1, 2, 3, 4]], [2, 3, 1, 4]),
        ([range(1, 4), range(2, 6), range(6, 8)], [1, 2, 3, 4, 5, 6, 7]),
        ([range(5, 8), range(1, 3), [8, 4]], [5, 6, 7, 1, 2, 8, 4]),
    ],
)
def test_timers_that_came_before_are_left_out_in_whatever_order_they_end(
    sent: list[Sequence[int]], delivered: list[int]
) -> None:
    service, rank = Service(), Rank(0)
    for ids in sent:
        lines = SpanLines.of(span(number, **{"ml.timer.level": 1}) for number in ids)
        service.take([Spans(rank.writer, lines, ids if isinstance(ids, range) else tuple(ids))])

    batches = [record for record in service.records if isinstance(record, SpanBatch)]
    assert [int(each.span_id, 16) for batch in batches for each in batch.spans] == delivered


def test_two_ranks_that_disagree_on_a_reduction_are_published_apart_and_it_is_said_with_both() -> None:
    service, ranks = Service(), [Rank(rank, world_size=2) for rank in range(2)]

    for step in range(2):
        service.take(
            ranks[0].record(step, {"loss": 1.0}, "mean"),
            ranks[0].done(step),
            ranks[1].record(step, {"loss": 3.0}, "max"),
            ranks[1].done(step),
        )

    assert service.rows() == {step: {"loss/mean": 1.0, "loss/max": 3.0} for step in range(2)}
    (notice,) = service.notices
    assert "'mean' on rank 0" in notice
    assert "'max' on rank 1" in notice


def test_names_carry_role_axis_attributes_and_further_reductions() -> None:
    service, rank = Service(), Rank(0, role="generator")

    service.take(
        rank.record(3, {"reward": [1.0, 3.0]}, "mean,max,rank", axis="rollout", attributes=(("task", "math"),)),
        rank.done(3, axis="rollout"),
    )

    assert service.rows(axis="rollout", role="generator")[3] == {
        "generator/rollout/reward/task/math": 2.0,
        "generator/rollout/reward/task/math/max": 3.0,
        "generator/rollout/reward/task/math/rank_0": 2.0,
    }


@pytest.mark.parametrize(
    ("edges", "counts"), [((), (1.0,) * 600), ((0.0, 1.0), (1.0, 2.0)), ((0.0, 1.0), ("many",)), ((0.0, "x"), (1.0,))]
)
def test_a_histogram_whose_counts_are_not_those_of_its_bins_is_reported_and_left_out(
    edges: Sequence[float | str], counts: Sequence[float | str]
) -> None:
    service, rank = Service(), Rank(0)

    service.take(rank.event("ml.histogram", {"edges": [*edges], "counts": [*counts]}, 3, name="weights"))
    service.take(rank.event("ml.histogram", {"edges": [0.0, 1.0, 2.0], "counts": [3, 4]}, 4, name="weights"))

    [shown] = [record for record in service.records if isinstance(record, HistogramValue)]
    assert (shown.step, shown.edges, shown.counts) == (4, (0.0, 1.0, 2.0), (3.0, 4.0))
    assert any("'ml.histogram' of rank 0 cannot be read" in notice for notice in service.notices)


def test_an_event_of_another_sdk_that_comes_again_after_a_restart_is_known_though_much_else_came_with_it() -> None:
    """What is remembered is in two halves; one of them is full in the middle of a request."""
    service, rank = Service(EngineSettings(identities=4)), Rank(0)
    events = [replace(rank.event("ml.text", f"{number}", 3, name="said")[0], seq=None) for number in range(6)]
    service.take(events)

    service.restart()
    service.take(events)

    assert len([record for record in service.records if isinstance(record, Text)]) == 6

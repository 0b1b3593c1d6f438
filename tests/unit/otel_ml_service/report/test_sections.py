"""The parts of a run's page, each with exactly what stands in it."""

from __future__ import annotations

import re

import pytest

from otel_ml_exporters.records import (
    Artifact,
    Image,
    JsonValue,
    Params,
    Record,
    RunStatus,
    Span,
    SpanBatch,
    StepRecord,
    Summary,
    Table,
    Text,
)
from otel_ml_service.report import sections
from otel_ml_service.report.contents import Contents, contents
from otel_ml_service.report.markup import Amount
from tests.unit.otel_ml_service.report.test_page import Reader

PNG = b"\x89PNG"


def run_of(*records: Record) -> Contents:
    return contents("run-1", "pages", records)


def step(at: int, values: dict[str, float], **given: object) -> StepRecord:
    about: dict[str, object] = {"role": "trainer", "axis": "step", "attempt": 0, "missing": 0, **given}
    return StepRecord(
        at + 1, str(about["role"]), str(about["axis"]), at, int(str(about["attempt"])), 1000.0 + at, values,
        int(str(about["missing"])),
    )  # fmt: skip


def facts_of(run: Contents) -> dict[str, tuple[str, str | None]]:
    read = Reader(sections.facts(run))
    kinds = [has.get("class") for tag, has in read.elements if tag == "b"]
    return {name: (value, kind) for name, value, kind in zip(read.texts[::2], read.texts[1::2], kinds, strict=True)}


def test_how_a_run_stands_is_told_with_its_counts() -> None:
    rows = [step(at, {"loss": 1.0}, missing=int(at == 1)) for at in range(3)]
    rows += [step(2, {"loss": 1.0}, attempt=1), step(0, {"work": 1.0}, role="generator", axis="rollout")]
    run = run_of(*rows, Summary(20, 1007.0, {"otel_ml/recorded": 5.0, "otel_ml/ranks_unheard": 2.0}),
                 RunStatus(21, 1010.0, "failed"))  # fmt: skip
    run.not_taken = {"wandb": 1234}

    found = facts_of(run)

    assert found["status"] == ("failed", "failed")
    assert found["began"] == ("1970-01-01 00:16:40 UTC", None)
    assert found["ranks that were not heard of"] == ("2", "warning")
    assert found["attempts"] == ("2", None)
    assert found["steps"] == ("3", None)
    assert found["steps of generator/rollout"] == ("1", None)
    assert found["steps done again"] == ("1", None)
    assert found["steps with a rank missing"] == ("1", "warning")
    assert found["values lost"] == ("0", None)
    assert found["values not in wandb"] == ("1,234", "failed")
    assert found["values amended"] == ("0", None)


def test_what_is_not_known_of_a_run_is_left_out() -> None:
    assert set(facts_of(run_of())) == {
        "status", "duration", "steps", "steps with a rank missing", "values lost", "values amended",
    }  # fmt: skip
    assert facts_of(run_of())["values lost"] == ("not known", None)
    lost = Summary(1, 1.0, {"otel_ml/recorded": 5.0, "otel_ml/dropped/spool_full": 3.0})
    assert facts_of(run_of(lost))["values lost"] == ("3", "failed")
    seconds = facts_of(run_of(step(5, {"loss": 1.0}, axis="time")))
    assert seconds["steps"] == ("0", None)


@pytest.mark.parametrize(
    ("roles", "shown"),
    [(["trainer", "trainer"], "2"), (["trainer", "generator", "generator"], "1 trainer, 2 generator"), ([], None)],
)
def test_ranks_are_told_by_role_where_there_are_several(roles: list[str], shown: str | None) -> None:
    spans = [Span("0" * 32, "0" * 16, None, "x", 1, 2, role, rank, "step", 0) for rank, role in enumerate(roles)]

    found = facts_of(run_of(SpanBatch(1, spans)) if spans else run_of())

    assert found.get("ranks", (None,))[0] == shown


def test_parameters_are_those_of_the_user_first_and_final_values_without_otel_mls() -> None:
    given: dict[str, JsonValue] = {"otel_ml.version": "1", "lr": 0.1, "model": {"layers": 2}}

    texts = Reader(
        sections.params(run_of(Params(1, 1.0, given), Summary(2, 1.0, {"acc": 0.5, "otel_ml/x": 1.0})))
    ).texts

    assert texts == [
        "Final values", "name", "value", "acc", "0.5",
        "Parameters", "parameter", "value", "lr", "0.1", "model.layers", "2", "otel_ml.version", "1",
    ]  # fmt: skip


def test_timers_are_told_by_role_with_their_shares() -> None:
    both = {"time/step": 2.0, "time/forward": 1.5, "time/forward/argmax": 3.0}
    alone = Reader(sections.timing(run_of(step(0, both))))
    two = Reader(sections.timing(run_of(step(0, both), step(0, {"generator/time/work": 1.0}, role="generator"))))

    assert alone.texts == [
        "Where the time goes", "timer", "a step", "longest", "in all", "of the step", "rank at the front",
        "step", "2 s", "2 s", "2 s", "100 %", "forward", "1.5 s", "1.5 s", "1.5 s", "75 %", "3",
    ]  # fmt: skip
    assert [text for text in two.texts if text in {"trainer", "generator"}] == ["trainer", "generator"]
    assert [has["value"] for tag, has in alone.elements if tag == "meter"] == ["1.0000", "0.7500"]


@pytest.mark.parametrize(
    ("column", "cell", "shown"),
    [
        ("level", "critical", '<b class="critical">critical</b>'),
        ("span", "ab" * 8, f"<code>{'ab' * 8}</code>"),
        ("trace", None, None),
        ("given", 1.4, Amount("1.4 ×")),
        ("slowdown", 0.72, Amount("72 %")),
        ("s per step", 0.02, Amount("20 ms")),
        ("s in all", None, None),
        ("since", 4, 4),
        ("phase", "forward", "forward"),
        ("others wait", True, True),
    ],
)
def test_a_cell_of_a_finding_is_shown_as_people_read_it(column: str, cell: JsonValue, shown: object) -> None:
    found = sections._found(column, cell)

    assert found == shown
    assert isinstance(found, Amount) is isinstance(shown, Amount)


def test_the_table_of_findings_of_each_role_has_the_columns_that_say_something() -> None:
    columns = ("level", "kind", "rank", "since", "s per step", "span", "place", "amount")
    rows = (
        ("warning", "slow", 2, 4, 0.02, "ab", "rank 2", None),
        ("critical", "silent", 1, 5, None, None, "rank 1", None),
    )
    table = Table(1, 1.0, "generator/otel_ml/findings", "step", 9, columns, rows)

    assert Reader(sections.findings(run_of(table))).texts == [
        "Slow and silent ranks", "generator/", "level", "kind", "place", "since", "s per step", "span",
        "warning", "slow", "rank 2", "4", "20 ms", "ab", "critical", "silent", "rank 1", "5",
    ]  # fmt: skip


def test_the_newest_rows_of_a_table_are_shown_with_how_many_there_are() -> None:
    rows = tuple((number, None if number % 2 else "x" * 3000, number == 104) for number in range(105))

    read = Reader(sections.tables(run_of(Table(1, 1.0, "samples", "eval", 7, ("n", "said", "is"), rows))))
    whole = Reader(sections.tables(run_of(Table(1, 1.0, "samples", "eval", None, ("n",), rows[:100]))))

    assert read.texts[:5] == ["Tables", "samples, eval 7, the last 100 of 105 rows", "n", "said", "is"]
    assert read.texts[5:8] == ["5", "False", "6"]
    assert "x" * 2000 + "…" in read.texts
    assert "True" in read.texts
    assert whole.texts[1] == "samples"
    assert sections.tables(run_of(Table(1, 1.0, "otel_ml/findings", "step", 7, ("level",), (("warning",),)))) == ""


def test_texts_are_cut_where_they_are_very_long() -> None:
    read = Reader(
        sections.texts(
            run_of(Text(1, 1.0, "a", "step", 3, "x" * 20_000), Text(2, 1.0, "b", "step", None, "y" * 20_001))
        )
    )

    assert read.texts == ["Texts", "a, step 3", "x" * 20_000, "b", "y" * 20_000 + "…"]


def image(name: str, size: int = 4, caption: str | None = None) -> Image:
    return Image(1, 1.0, name, "step", 3, PNG.ljust(size, b"x"), 10, 20, caption)


def test_images_have_their_name_their_step_and_their_caption() -> None:
    read = Reader(sections.images(run_of(image("a"), image("b", caption="a cat"), image("otel_ml/stragglers"))))

    assert read.texts == ["Images", "a, step 3", "b, step 3: a cat"]
    pictures = [(has["width"], has["height"], has["alt"]) for tag, has in read.elements if tag == "img"]
    assert pictures == [("10", "20", "a, step 3"), ("10", "20", "b, step 3: a cat")]


def test_images_that_a_page_cannot_hold_are_counted() -> None:
    megabytes = 2**20
    large = [image("a", 10 * megabytes), image("b", 7 * megabytes), image("c", 6 * megabytes)]
    many = [image(f"i{number}") for number in range(50)]

    assert re.findall("<(?:figcaption|p[^>]*)>([^<]*)<", sections.images(run_of(*large))) == [
        "a, step 3", "c, step 3", "1 more are in the run: too large, or too many for a page.",
    ]  # fmt: skip
    shown = Reader(sections.images(run_of(*many)))
    assert len([tag for tag, _ in shown.elements if tag == "img"]) == 48
    assert shown.texts[-1].startswith("2 more are in the run")
    assert "more are in the run" not in sections.images(run_of(*many[:48]))


def test_a_file_has_its_size_and_the_beginning_of_its_digest() -> None:
    files = [
        Artifact(
            1, 1.0, "model", "checkpoint", "model.pt", None, "/x/model.pt", 12345, "ab" * 32, 59, ("best", "last")
        ),
        Artifact(2, 1.0, "log", "file", "log.txt", None, "/x/log.txt", 10, None, None, ()),
    ]

    texts = Reader(sections.artifacts(run_of(*files))).texts

    assert texts[:8] == ["Artifacts", "name", "type", "file", "size", "step", "aliases", "SHA-256"]
    assert texts[8:15] == ["model", "checkpoint", "model.pt", "12.3 kB", "59", "best, last", "ab" * 6]
    assert texts[15:19] == ["log", "file", "log.txt", "10 B"]


def test_what_a_run_has_nothing_of_is_left_out() -> None:
    for part in (sections.params, sections.timing, sections.findings, sections.workers, sections.tables, sections.texts,
                 sections.images, sections.artifacts):  # fmt: skip
        assert part(run_of()) == ""

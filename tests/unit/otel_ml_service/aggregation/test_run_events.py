"""Log records with media, tables and files: what becomes a record, and what cannot be read."""

from __future__ import annotations

import json

import pytest

from otel_ml_exporters.records import Artifact, Audio, Image, Record, Text
from tests.strategies import START, Rank, Service


def record_of(kind: str, body: object, **attributes: object) -> Record:
    """Return the one record that an event at step 3 becomes."""
    service = Service()
    service.take(Rank(0).event(kind, body, 3, **{"name": "shown", **attributes}))
    assert service.notices == []
    [record] = service.records
    return record


@pytest.mark.parametrize("caption", [None, "a cat"])
def test_audio_and_images_keep_what_is_said_of_them(caption: str | None) -> None:
    given = {} if caption is None else {"caption": caption}

    audio = record_of("ml.audio", b"RIFF", sample_rate=16_000, **given)
    image = record_of("ml.image", b"png", width=4, height=3, **given)

    assert audio == Audio(1, START, "shown", "step", 3, b"RIFF", 16_000, caption)
    assert image == Image(1, START, "shown", "step", 3, b"png", 4, 3, caption)


@pytest.mark.parametrize("rate", [None, "fast", float("nan")])
def test_a_number_that_is_not_said_is_0(rate: object) -> None:
    audio = record_of("ml.audio", b"RIFF", **({} if rate is None else {"sample_rate": rate}))

    assert isinstance(audio, Audio)
    assert audio.sample_rate == 0


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("ml.table", {"columns": ["a", "b"], "rows": [[1, 2], [3]]}),
        ("ml.table", {"columns": "ab", "rows": []}),
        ("ml.table", {"columns": ["a"], "rows": ["x"]}),
        ("ml.table", {"columns": ["a"]}),
        ("ml.image", "no bytes"),
        ("ml.audio", None),
        ("ml.histogram", {"edges": 1.0, "counts": []}),
        ("ml.params", ["lr"]),
        ("ml.summary", 0.5),
    ],
)
def test_what_is_not_what_its_name_says_is_left_out_and_said_once(kind: str, body: object) -> None:
    service, ranks = Service(), [Rank(rank) for rank in range(2)]

    service.take(ranks[0].event(kind, body, 3, name="shown"), ranks[0].event(kind, body, 4, name="shown"))
    service.take(ranks[1].event("ml.text", "fine", 3, name="said"))

    assert [type(record) for record in service.records] == [Text]
    [notice] = service.notices
    assert notice.startswith(f"An event {kind!r} of rank 0 cannot be read and is left out: ")


def test_of_final_values_those_that_are_numbers_are_kept() -> None:
    summary = record_of("ml.summary", {"best": 0.5, "who": "me", "when": None, "epochs": 3})

    assert summary.values == {"best": 0.5, "epochs": 3}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "said", "size", "comes_later"),
    [
        (b"weights", {}, 7, False),
        (b"weights", {"artifact.size": 9}, 9, False),
        (b"", {"artifact.size": 0}, 0, False),
        (b"", {}, 0, True),
        (b"", {"artifact.size": 5}, 5, True),
        (None, {"artifact.size": 0}, 0, True),
    ],
)
def test_what_came_with_an_artifact_is_its_file_and_for_any_other_it_is_looked(
    body: bytes | None, said: dict[str, object], size: int, comes_later: bool
) -> None:
    service, rank = Service(), Rank(0)
    facts = {"artifact.kept": "k1", "artifact.modified": 77, "artifact.uri": "s3://b/m", **said}

    service.take(rank.event("ml.artifact", body, 3, name="model", **facts))

    [outcome] = service.outcomes
    named = [(file.kept, file.modified_ns) for file in outcome.named]
    artifacts: list[object] = [*(file.artifact for file in outcome.named), *outcome.records]
    [artifact] = artifacts
    assert isinstance(artifact, Artifact)
    assert (artifact.time, artifact.size, artifact.uri, artifact.step) == (START, size, "s3://b/m", 3)
    assert named == ([("k1", 77)] if comes_later else [])
    assert outcome.files == ({} if comes_later else {1: body})


@pytest.mark.parametrize("world_size", [None, 1, 2])
def test_what_a_rank_failed_with_is_a_text_and_is_said_where_others_train_on(world_size: int | None) -> None:
    """One alone has just printed it."""
    service, rank = Service(), Rank(1, world_size=world_size)

    service.take(rank.event("exception", None, 7, status="failed"))

    [text] = service.records
    assert isinstance(text, Text)
    assert text.step == 7
    assert len(service.notices) == (1 if world_size == 2 else 0)


def test_what_carries_a_body_that_is_no_mapping_is_shown_with_it_and_bytes_are_left_out() -> None:
    texts = [record_of("note", body) for body in ("said", None, b"\x00", {"at": 3})]

    shown = [json.loads(text.text) for text in texts if isinstance(text, Text)]
    assert shown == [{"body": "said"}, {}, {}, {"at": 3}]

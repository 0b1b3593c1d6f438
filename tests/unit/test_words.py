"""Names say what the field says: words that only we would understand are not among them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.jobs import ROOT

_PACKAGES = ("otel_ml", "exporters/otel_ml_exporters", "service/otel_ml_service")


@dataclass(frozen=True)
class Word:
    """A word of ours, and what the field says instead.

    Attributes:
        old: the word, and forms of it.
        instead: what a reader of other systems expects.
        within: beginnings of the paths in which it is refused; elsewhere it has its usual meaning.
    """

    old: tuple[str, ...]
    instead: str
    within: tuple[str, ...] = _PACKAGES


_STEP_WINDOWS = tuple(
    f"service/otel_ml_service/{wing}/" for wing in ("aggregation", "delivery", "live_runs", "storage")
)

WORDS = (
    Word(("track", "tracks"), "stream"),
    Word(("lane", "lanes"), "attempt"),
    Word(("unit", "units"), "window, step window", _STEP_WINDOWS),  # elsewhere it is OpenTelemetry's: of a value
    Word(("manifest", "manifests"), "watermark"),
    Word(("judge", "judges", "judged", "judging"), "trigger"),
    Word(("placing", "placings"), "attempt assignment"),
    Word(("contest", "contests", "contested", "lives"), "restart detection"),
    Word(("amended", "amends"), "corrected"),
    Word(("aside", "asides"), "background worker; of what is refused: quarantine"),
    Word(("errand", "errands"), "future"),
    Word(("foreign",), "third-party"),
    Word(("unread",), "fast path; of what cannot be read: unreadable"),
    Word(("heads",), "scope cache", ("service/otel_ml_service/receiver/",)),  # elsewhere: of attention, of bytes
    Word(("room", "rooms"), "quota, capacity, space"),
    Word(("pace", "paces"), "rate limit; of steps: their time"),
    Word(("patience",), "timeout"),
    Word(("alarm", "alarms"), "timer"),
    Word(("handover", "handovers"), "batched wake-up"),
    Word(("farewell", "farewells", "goodbye"), "shutdown message"),
)

PUBLISHED = {
    ("otel_ml/compat/wandb/artifact.py", "manifest"): "a member of W&B's Artifact",
    ("otel_ml/compat/forge/tracer.py", "track_memory"): "an argument of torchforge's Tracer",
    ("otel_ml/compat/roll/durations.py", "track"): "a method of ROLL's",
    ("otel_ml/compat/verl/rl_insight.py", "state_lane_id"): "an argument of verl's",
    ("exporters/otel_ml_exporters/backends/swanlab/run_file.py", "amended"): "a key of the file that is kept of a run",
    ("service/otel_ml_service/aggregation/step_streams.py", "amended"): "the counter otel_ml/amended",
    ("service/otel_ml_service/aggregation/outcome.py", "amended"): "the counter otel_ml/amended",
    ("service/otel_ml_service/aggregation/writer_state.py", "contested"): "a key of the engine's stored state",
    ("service/otel_ml_service/receiver/http_message.py", "heads"): "the head of an HTTP message",
}
"""Path and name → why it stays."""

FIELDS_OWN = {
    ("service/otel_ml_service/perfetto/", "track"): "Perfetto's word for a line of its timeline",
    ("service/otel_ml_service/perfetto/", "tracks"): "Perfetto's word for a line of its timeline",
    ("otel_ml/diagnostics/tensor_statistics/", "lane"): "a lane of a GPU's vector",
    ("otel_ml/diagnostics/tensor_statistics/", "lanes"): "a lane of a GPU's vector",
}
"""Beginning of a path and word → what the field means by it there."""


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.old[0])
def test_no_name_has_a_word_of_ours_where_the_field_has_one(word: Word) -> None:
    found = [
        f"{place}: {name}"
        for place, name in sorted(names())
        if place.startswith(word.within)
        and (place, name) not in PUBLISHED
        and any(old in words_of(name) and not is_the_fields(place, old) for old in word.old)
    ]

    assert found == [], f"Say {word.instead} instead of {word.old[0]!r}."


def test_what_stays_is_still_there() -> None:
    there = names()

    assert [one for one in PUBLISHED if one not in there] == []
    for beginning, word in FIELDS_OWN:
        assert any(place.startswith(beginning) and word in words_of(name) for place, name in there)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_has_room", ["has", "room"]),
        ("NoRoomError", ["no", "room", "error"]),
        ("_PATIENCE_S", ["patience", "s"]),
        ("HTTPHeads2", ["http", "heads", "2"]),
        ("mushroom", ["mushroom"]),
    ],
)
def test_words_of_a_name(name: str, words: list[str]) -> None:
    assert words_of(name) == words


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def is_the_fields(place: str, word: str) -> bool:
    return any(place.startswith(beginning) and word == own for beginning, own in FIELDS_OWN)


@cache
def names() -> frozenset[tuple[str, str]]:
    """Return each name that the packages give to something, with its path."""
    return frozenset(_names())


def _names() -> Iterator[tuple[str, str]]:
    for package in _PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            place = file.relative_to(ROOT).as_posix()
            yield place, file.parent.name if file.stem == "__init__" else file.stem
            yield from ((place, name) for name in given(file))


def given(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name

"""Whether every backend holds what the ranks wrote down, and holds it once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.jobs import BACKENDS, Scalars, answer_of
from tests.e2e.oracle import expected
from tests.e2e.rank import written_in
from tests.e2e.test_every_backend_equals_the_oracle import as_stored

__all__ = ["assert_everything_is_there_once"]

Points = Counter[tuple[str, int, str]]
"""(name, step, value as text: NaN is NaN) → how often it is stored, corrections included."""


def assert_everything_is_there_once(folder: Path, run: Path, backends: Sequence[str] = BACKENDS) -> None:
    """Compare JSONL with the oracle, and every other backend with JSONL, point by point.

    Sums and counts among the values would show a record of a rank that is missing or was taken twice.

    Args:
        folder: in which `written/` has what the ranks wrote down.
        run: the run's folder.
        backends: to compare; JSONL is one of them.
    """
    with ThreadPoolExecutor(2) as readers:
        answers = dict(zip(backends, readers.map(partial(answer_of, run=run), backends), strict=True))
    lines = answers["jsonl"]
    assert_values_are(expected(written_in(folder / "written")), last_values(lines))

    seqs = [json.loads(line)["seq"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(seqs) == len(set(seqs))
    for backend, answer in answers.items():
        wanted, found = points_of(lines, backend), points_of(answer)
        lost, doubled = wanted - found, found - wanted
        print(f"{backend}: {found.total():,} points, {lost.total()} lost, {doubled.total()} duplicated")
        assert not lost, f"{backend} lost {lost}"
        assert not doubled, f"{backend} has more than once {doubled}"


def assert_values_are(wanted: Scalars, shown: Scalars) -> None:
    assert sorted(shown) == sorted(wanted)
    for name, values in wanted.items():
        # The nearest-rank quantile of a scale-6 exponential histogram is off by at most 0.6 % (docs/protocol.md §2.8).
        relative = 0.006 if "quantile/" in name else 1e-12
        assert shown[name] == pytest.approx(values, rel=relative, abs=0, nan_ok=True), name


def last_values(answer: Mapping[str, Any]) -> Scalars:
    shown: Scalars = {}
    for name, step, value in users(answer):
        shown.setdefault(name, {})[step] = value
    return shown


def points_of(answer: Mapping[str, Any], kept_by: str = "jsonl") -> Points:
    return Counter((name, step, repr(as_stored(kept_by, value))) for name, step, value in users(answer))


def users(answer: Mapping[str, Any]) -> list[tuple[str, int, float]]:
    """Return what ranks recorded at a step, corrections last: not what is otel_ml's own, nor what agents scraped."""
    stored = [*answer["scalars"], *answer["amendments"]]
    written = answer.get("names", {})  # where a backend does not take a name, what it was
    return [
        (written.get(name, name), step, float(value))
        for name, axis, step, value, *_ in stored
        if axis != "time" and "otel_ml/" not in name
    ]

"""One run as its page knows it: what is new in its folder, and what of the page has changed."""

from __future__ import annotations

import hashlib
import itertools
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

from otel_ml.wire.attributes import DEFAULT_AXIS
from otel_ml_exporters.records import Record, Span, SpanBatch, StepRecord
from otel_ml_service.findings.causal_order import in_causal_order
from otel_ml_service.report.answer import troubles
from otel_ml_service.report.chart_groups import (
    bookkeeping_section,
    charts_of,
    curve_section,
    is_rank,
)
from otel_ml_service.report.contents import Contents
from otel_ml_service.report.curves import Curve, numbers, shell, strip_numbers
from otel_ml_service.report.markup import Markup, section, tag, written_out
from otel_ml_service.report.named_steps import whole_steps
from otel_ml_service.report.page import page_of_parts, parts
from otel_ml_service.report.step_view import StepName, by_step, step_view
from otel_ml_service.report.steps_told import StepsTold
from otel_ml_service.stored_runs.deliveries import deliveries, not_taken
from otel_ml_service.stored_runs.follow_jsonl import Follower
from otel_ml_service.stored_runs.follow_spans import SpanFollower
from otel_ml_service.stored_runs.rank_places import hosts_of
from otel_ml_service.stored_runs.read_records import RunInUseError, RunUnreadableError, is_live, whole_records
from otel_ml_service.stored_runs.run_folders import RunFolder, is_there
from otel_ml_service.stored_runs.run_history import SeriesName
from otel_ml_service.stored_runs.span_steps import SpanSteps

__all__ = ["ChartRequest", "FollowedRun", "digest_of"]

_CHARTS = 1_000
"""Charts of a live page: each is drawn, and its numbers asked for, when it comes into view."""


_COUNT = itertools.count(secrets.randbelow(2**40))
"""Numbers of versions and generations. A page may ask who has read the run anew: none is one that the page has."""

_LOOKS = 3
"""Findings whose steps are looked for in the file of spans before a new step is shown instead."""


class ChartRequest:
    """What a page has of a chart: all up to `last`, if nothing before that has changed since `generation`."""

    def __init__(self, key: str, generation: int | None, last: int | None) -> None:
        self.key, self.generation, self.last = key, generation, last


class Held(NamedTuple):
    """What a run holds; the contents are not to be changed.

    Attributes:
        version: a word that changes with them.
        is_live: whether the run goes on.
    """

    contents: Contents
    version: str
    is_live: bool


class FollowedRun:
    """Reads a run's folder, and again what came since. Safe to use from several threads.

    While a service has the run open its own file cannot be read: what the exporter `jsonl` writes is followed. When
    the run is over it is read once more, whole.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._lock, self._spans_lock = threading.Lock(), threading.Lock()
        self._spans = SpanSteps(folder.path / "spans.jsonl")
        self._contents = Contents(folder.id, folder.experiment)
        self._followers: tuple[Follower, SpanFollower] | None = None
        self._read_at = -1.0
        self._version = next(_COUNT)
        self._generation = next(_COUNT)
        self._newest: dict[tuple[str, str], int] = {}
        self._is_live = False
        self._told = StepsTold()
        self._rendered: tuple[int, dict[str, tuple[str, Markup]]] = (-1, {})
        self._charts: dict[str, tuple[SeriesName, Sequence[Curve]]] = {}

    def page(self) -> str:
        """Return the page as it is now."""
        with self._lock:
            self._refresh()
            rendered = self._parts()
            shown = {name: (digest, html) for name, (digest, html) in rendered.items()}
            return page_of_parts(self.folder.name, shown, self._version)

    def news(self, version: str, seen: frozenset[str], charts: Iterable[ChartRequest]) -> dict[str, Any] | None:
        """Return what has changed on a page: None where nothing has, and every chart it shows has its numbers."""
        asked = list(charts)
        with self._lock:
            self._refresh()
            # A chart that has just come into view has no numbers yet, though nothing has changed.
            if version == str(self._version) and all(one.generation is not None for one in asked):
                return None
            rendered = self._parts()
            return {
                "version": str(self._version),
                "parts": {
                    name: {"hash": digest, "html": html}
                    for name, (digest, html) in rendered.items()
                    if digest not in seen
                },
                "charts": {one.key: self._numbers(one) for one in asked if one.key in self._charts},
            }

    def step(self, name: StepName | None) -> dict[str, Any]:
        """Return the view of a step; without rows where no span of it is there.

        Args:
            name: of the step, whose role may be empty: of any that has it; None for the one that shows the worst
                finding, or without findings a new one.
        """
        with self._lock:
            self._refresh()
            newest = by_step(in_causal_order(self._contents.spans))
            whole = whole_steps(self._contents, newest)
            named = [(one.role, one.axis, one.shows) for one in troubles(self._contents)]
            roles = sorted({role for role, axis in self._contents.times}, key=lambda role: (role != "trainer", role))
        # The newest step of all is still being done.
        newer = sorted(newest, key=lambda one: (one[1] == DEFAULT_AXIS, one[2]))[-2:]
        asked = (
            [*named[:_LOOKS], *newer]
            if name is None
            else [_as_recorded((role, *name[1:]), newest) for role in ([name[0]] if name[0] else roles)]
        )
        for one in asked:
            # A run without `spans.jsonl` has no others than those of the newest that are held.
            if spans := whole.get(one) or self._stored(one) or newest.get(one):
                return step_view(one, spans)
        return {"rows": []}

    def _stored(self, name: StepName) -> list[Span]:
        # Not while the page is locked: of a long run the first look takes seconds.
        with self._spans_lock:
            return list(self._spans.of(*name))

    @contextmanager
    def held(self) -> Iterator[Held]:
        """Yield what the run holds now; it stays so until the block ends."""
        with self._lock:
            self._refresh()
            yield Held(self._contents, f"{self._version}{'-' if self._is_live else '.'}", self._is_live)

    def _refresh(self) -> None:
        self._is_live = is_live(self.folder)
        modified = RunFolder(self.folder.path).modified  # as it is now: a folder knows it once for all
        try:
            if self._is_live or not is_there(self.folder.database):
                self._follow()
            elif self._followers is not None or self._read_at != modified:
                if self._read_whole():
                    self._read_at = modified
                else:
                    self._is_live = True
                    self._follow()
        except BaseException:
            # What was read until then is a part of the run: who asks next begins anew, or is told the same.
            self._followers, self._read_at = None, -1.0
            raise

    def _follow(self) -> None:
        if self._followers is not None and any(one.is_of_another_file for one in self._followers):
            self._followers = None
        if self._followers is None:
            if not is_there(self.folder.jsonl):
                raise RunUnreadableError(
                    f"Run {self.folder.id!r} is being recorded, and nothing of it can be read yet. If that lasts, "
                    "add jsonl to OTEL_ML_EXPORTERS, or look when it is over."
                )
            self._begin_anew()
            self._followers = Follower(self.folder.jsonl), SpanFollower(self.folder.path / "spans.jsonl")
        new: list[Record] = list(self._followers[0].new_records())
        # Behind the records: of a batch the exporter `jsonl` writes the spans first, so those of what was just read are
        # there.
        spans = self._followers[1].new_spans()
        self._take(new)
        if spans:
            self._contents.add(SpanBatch(0, spans))
        if new or spans:
            self._version = next(_COUNT)

    def _read_whole(self) -> bool:
        """Read all that there is; return whether that can be: a service may open the run meanwhile.

        It may only make the file small, after which that looks as it did before.
        """
        self._begin_anew()
        self._followers = None
        try:
            self._take(whole_records(self.folder))
        except RunInUseError:
            return False
        # Only now: while a service has the run open nobody can tell.
        self._contents.hosts = hosts_of(self.folder)
        found = deliveries(self.folder)
        self._contents.not_taken = not_taken(found or ())
        if not self._contents.workers:
            spans = SpanFollower(self.folder.path / "spans.jsonl").new_spans()
            self._contents.add(SpanBatch(0, spans))
        return found is not None

    def _begin_anew(self) -> None:
        self._contents = Contents(self.folder.id, self.folder.experiment)
        self._contents.name, self._contents.notes = self.folder.name, self.folder.notes
        self._contents.facts.reads(self.folder)
        self._told = StepsTold()
        self._newest = {}
        self._version, self._generation = next(_COUNT), next(_COUNT)

    def _take(self, new: Iterable[Record]) -> None:
        for record in new:
            self._contents.add(record)
            self._contents.history.add(record)
            if isinstance(record, StepRecord):
                place = record.role, record.axis
                # A page that asks for what is after its last step would never see a step again that was there before.
                if record.step <= self._newest.get(place, -1):
                    self._generation = next(_COUNT)
                self._newest[place] = max(record.step, self._newest.get(place, -1))

    def _parts(self) -> dict[str, tuple[str, Markup]]:
        # Several pages of one run ask each second: it is drawn once.
        if self._rendered[0] != self._version:
            charts = charts_of(self._contents)
            self._charts = {_key(key): (key, curves) for key, curves in charts.items()}
            drawn = parts(
                self._contents,
                curve_section(charts, _shell, _CHARTS),
                bookkeeping_section(charts, _shell),
                self._steps(),
                self._told.of(self._contents),
                is_live=self._is_live,
            )
            self._rendered = self._version, {name: (digest_of(html), html) for name, html in drawn.items()}
        return self._rendered[1]

    def _steps(self) -> Markup:
        """Return the place of the step view, which asks for steps; it does not change while the run goes on."""
        if not self._contents.workers:
            return Markup("")
        return section("What every rank did in a step", tag("div", class_="step", data_steps="[]", data_live="1"))

    def _numbers(self, asked: ChartRequest) -> dict[str, Any]:
        key, curves = self._charts[asked.key]
        role = self._contents.facts.place_of(key.axis, key.name).role
        if is_rank(key.name):
            told = strip_numbers(key.name, key.axis, curves[0].series)
        else:
            after = asked.last if asked.generation == self._generation else None
            told = numbers(key.name, key.axis, curves, after)
        return {**told, "generation": self._generation, "role": role}


def _as_recorded(name: StepName, steps: Iterable[StepName]) -> StepName:
    """Return a step that a page asks for; the page has its role and axis written out."""
    places = {(written_out(role), written_out(axis)): (role, axis) for role, axis, _ in steps}
    role, axis, step = name
    return *places.get((role, axis), (role, axis)), step


def _shell(key: SeriesName, curves: Sequence[Curve]) -> Markup:
    return shell(_key(key), key.name, [curve.label for curve in curves], is_strip=is_rank(key.name))


@lru_cache(maxsize=100_000)
def _key(key: SeriesName) -> str:
    return digest_of("\n".join(key))


def digest_of(text: str) -> str:
    """Return a short word for a text: another one for any other."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

"""`define_metric()`: an x-axis other than the step, and which value the summary keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.compat.tracking.not_kept import is_given, not_kept
from otel_ml.compat.tracking.step_axes import whole
from otel_ml.compat.wandb.final_values import Summary
from otel_ml.compat.wandb.values_so_far import ValuesSoFar
from otel_ml.variable import comma_separated
from otel_ml.wire.attributes import HIDDEN_SUMMARIES_PARAM, STEP_METRICS_PARAM
from otel_ml.wire.published_name import matches_beginning

__all__ = ["Definitions", "Metric"]

_KNOWN = ("min", "max", "mean", "first", "last", "best")

_NONE = "none"
"""A summary that wins over the others beside it: W&B's page has no value of the metric then."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What one `define_metric()` said of a name or a glob.

    Attributes:
        step_sync: whether a row without the step metric is drawn over the last one; always so here.
        hidden: whether W&B's page shows no chart of it; one is shown here.
    """

    name: str
    step_metric: str | None = None
    summary: tuple[str, ...] = ()
    goal: str | None = None
    step_sync: bool | None = None
    hidden: bool | None = None


class SharedIndex:
    """Which metrics have several rows at one value of their step metric: a loss of each batch, drawn over the epoch.

    On an axis of the step metric one value of each is kept. W&B keeps every row, and draws all of them.
    """

    def __init__(self) -> None:
        self._reached: dict[str, tuple[int, int]] = {}
        self._shared: set[str] = set()

    def is_shared(self, name: str, index: int, row: int) -> bool:
        """Whether a metric has, or had before, a value of another row at its index, or comes back to an earlier one."""
        if name in self._shared:
            return True
        # A metric that is new has reached -1, which no index is below.
        reached, of_row = self._reached.get(name, (-1, row))
        # Within one row, which `commit=False` leaves open, a metric may be logged again at its index.
        if index <= reached and row != of_row:
            self._shared.add(name)
            del self._reached[name]
            return True
        self._reached[name] = (index, row)
        return False


@dataclass(slots=True)
class Definitions:
    """All definitions of a run; exact names win over globs, later globs over earlier ones.

    Attributes:
        _of_glob: what a glob asked of the summary of a name at the first value of it; later globs change nothing of it.
        _step: the newest row whose step is the step metric of all metrics, and that step.
        _has_hidden: a metric has had no summary.
        _is_counted: rows have shared one, and each has a step of its own since.
    """

    metrics: dict[str, Metric] = field(default_factory=dict)
    _found: dict[str, Metric | None] = field(default_factory=dict)
    _of_glob: dict[str, Metric] = field(default_factory=dict)
    _so_far: ValuesSoFar = field(default_factory=ValuesSoFar)
    _last: dict[str, Any] = field(default_factory=dict)
    _shared: SharedIndex = field(default_factory=SharedIndex)
    _step: tuple[int, int] = (-1, -1)
    _is_counted: bool = False
    _has_hidden: bool = False

    def define(
        self,
        name: str,
        step_metric: Any,
        summary: str | None,
        overwrite: bool | None,
        goal: str | None = None,
        *,
        step_sync: bool | None = None,
        hidden: bool | None = None,
    ) -> Metric:
        """Add a definition to what the name has already, or put it in its place; return what was said now."""
        said = Metric(
            name,
            _step_metric(name, step_metric),
            _wanted(name, summary),
            _goal(name, goal),
            is_given(step_metric) if step_sync is None else step_sync,
            hidden,
        )
        if _is_name(name):
            # The step metric of before is the name's own. What is asked of its summary may come from a glob, as of its
            # first value; `overwrite` forgets both.
            before = Metric(name) if overwrite else self.metrics.get(name, Metric(name))
            asked = before if overwrite else self.metrics.get(name) or self._of_glob.get(name, before)
            self.metrics[name] = replace(
                said,
                step_metric=said.step_metric or before.step_metric,
                summary=_together(asked.summary, said.summary),
                goal=said.goal or asked.goal,
            )
            # Any name that was looked up may be one that this definition means.
            self._found.clear()
        return said

    def step_of(self, values: Mapping[str, Any], row: int) -> int:
        """Return the step of a row: where all metrics, `*`, have one step metric, that is the step of the run.

        Where rows share it, each has a step of its own from then on, and that is at least this one.
        """
        every = self.metrics.get("*")
        index = None if every is None or every.step_metric is None else self._index(every.step_metric, values)
        # Where `every` is None there is no index; the type checker does not know that.
        if every is None or index is None:
            return row
        # Only the metrics that `*` speaks of: one with a definition of its own does not say whether rows share a step.
        of_it = [name for name in values if name != every.step_metric and self._metric(name) is every]
        shared = [name for name in of_it if self._shared.is_shared(name, index, row)]
        # The newest row here, and the step that it has got.
        of_row, step = self._step
        if not shared and not self._is_counted:
            self._step = row, index
        # One step for each row, whatever is logged in several calls for it: `commit=False` leaves a row open.
        elif row != of_row or not self._is_counted:
            self._is_counted = True
            self._step = row, max(index, step + 1)
        return self._step[1]

    def rows(self, values: Mapping[str, Any], row: int) -> Iterator[tuple[str | None, int, dict[str, Any]]]:
        """Yield (step metric, its value, the values drawn over it); first those without one, as (None, 0, values).

        Where rows share a value of the step metric, theirs are among the latter, with the step metric beside them; so
        is a metric without a group, which an axis of its own would give another name.
        """
        plain: dict[str, Any] = {}
        beside: dict[str, int] = {}
        apart: dict[tuple[str, int], dict[str, Any]] = {}
        for name, value in values.items():
            metric = self._metric(name)
            # A glob such as `*` means its own step metric, too, which is not drawn over itself.
            over = None if metric is None or metric.step_metric == name else metric.step_metric
            index = None if over is None else self._index(over, values)
            if metric is None or over is None or index is None:
                plain[name] = value
            # `step_of()` has made their step metric the step of the row, unless rows share it.
            elif metric.name == "*":
                plain[name] = value
                if self._is_counted:
                    beside[over] = index
            elif "/" not in name or self._shared.is_shared(name, index, row):
                plain[name] = value
                beside[over] = index
            else:
                apart.setdefault((over, index), {})[name] = value
        # The step metrics first: what a row logs under the same name is newer.
        yield None, 0, {**beside, **plain}
        for (axis, index), drawn in apart.items():
            yield axis, index, drawn

    def count(self, values: Mapping[str, Any]) -> None:
        """Take the numbers of a row: a later definition asks for what was there before, too."""
        self._so_far.add(values)

    def observe(self, values: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Take the numbers of a row, and return the summaries of those that some are asked for of."""
        # All of them, also those whose summary nobody asks for: any may be the step metric of rows to come. `rows()`
        # comes before, so it finds the value of the rows before this one.
        self._last.update(values)
        self.count(values)
        asked = {name: self._asked(name) for name in values}
        summed = {name: self._summed(name, metric) for name, metric in asked.items() if metric is not None}
        return {name: found for name, found in summed.items() if found}

    def show_defined(self, summary: Summary, name: str) -> None:
        """Have a summary show what was just asked for of a name, if that has values."""
        # `define()` has reported what is not a name.
        metric = self.metrics.get(name) if isinstance(name, str) else None
        if metric is not None and _NONE in metric.summary:
            summary.forget([name])
        elif metric is not None and (found := self._summed(name, metric)):
            summary.observe({name: found})

    def _summed(self, name: str, asked: Metric) -> dict[str, float]:
        values = None if _NONE in asked.summary else self._so_far.of(name)
        return {} if values is None else {wanted: values.of(wanted, asked.goal) for wanted in asked.summary}

    def show(self, summary: Summary, values: Mapping[str, Any]) -> None:
        """Have a summary show the last values of a row, and of a metric whose summary is `none` nothing anymore."""
        hidden = {name for name in values if self._is_hidden(name)}
        summary.observe({name: value for name, value in values.items() if name not in hidden})
        summary.forget(hidden)

    def _is_hidden(self, name: str) -> bool:
        metric = self._metric(name)
        return metric is not None and _NONE in metric.summary

    def for_backends(self, said: Metric) -> dict[str, Any]:
        """Return the parameters that tell W&B's page, after a definition; none where it says nothing new there.

        Each is of all definitions, in the order that they were: pairs of a name or a glob and what it is drawn over,
        and whether it has no summary.
        """
        drawn = [[metric.name, metric.step_metric] for metric in self.metrics.values() if metric.step_metric]
        hidden = [[metric.name, _NONE in metric.summary] for metric in self.metrics.values()]
        self._has_hidden = self._has_hidden or any(is_hidden for _, is_hidden in hidden)
        return {
            **({STEP_METRICS_PARAM: drawn} if said.step_metric is not None else {}),
            **({HIDDEN_SUMMARIES_PARAM: hidden} if self._has_hidden else {}),
        }

    def summaries(self) -> dict[str, float]:
        """Return `loss.min` and the like, as W&B calls them."""
        # Of names and not of globs: a glob that came after the last value of a name asked nothing of it.
        asked = {name: metric for name, metric in self.metrics.items() if metric.summary}
        of_globs = {name: metric for name, metric in self._of_glob.items() if name not in self.metrics}
        return {
            f"{name}.{wanted}": value
            for name, metric in {**of_globs, **asked}.items()
            for wanted, value in self._summed(name, metric).items()
        }

    def _asked(self, name: str) -> Metric | None:
        """Return the definition that says what the summary has of a name; None where none does."""
        metric = self._metric(name)
        # Found by a glob, of which what it asked at the first value of the name counts.
        if metric is not None and metric.name != name:
            metric = self._of_glob.get(name, metric)
            if metric.summary:
                self._of_glob[name] = metric
        return metric if metric is not None and metric.summary else None

    def _metric(self, name: str) -> Metric | None:
        if name not in self._found:
            # Looked up once for each name; `define()` forgets the answers.
            globs = (glob for glob in reversed(self.metrics) if matches_beginning(name, glob))
            self._found[name] = self.metrics.get(name) or next((self.metrics[glob] for glob in globs), None)
        return self._found[name]

    def _index(self, step_metric: str, values: Mapping[str, Any]) -> int | None:
        # Of a row without the step metric the last one counts, as with W&B's `step_sync`.
        given = values.get(step_metric, self._last.get(step_metric))
        index = whole(given) if isinstance(given, (int, float)) else None
        if index is None and given is not None:
            not_kept(
                f"define_metric(step_metric={step_metric!r})",
                "an axis has whole numbers from 0 on, and this one has others; the values are at the step of log().",
            )
        return index


def _is_name(name: Any) -> bool:
    """Whether it is the name of a metric, or what names begin with and a `*`; said where it is neither."""
    if isinstance(name, str) and name and "*" not in name[:-1]:
        return True
    not_kept(
        f"define_metric({safe_repr(name)})",
        "Error: a metric is named, or what its name begins with and a `*` at the end.",
    )
    return False


def _step_metric(name: str, given: Any) -> str | None:
    # What `define_metric()` has returned is taken, too, as in W&B.
    axis = getattr(given, "name", given)
    if axis is None or isinstance(axis, str):
        return axis or None
    not_kept(f"define_metric({safe_repr(name)}, step_metric={safe_repr(axis)})", "Error: it is the name of a metric.")
    return None


def _wanted(name: str, summary: str | None) -> tuple[str, ...]:
    said = summary if isinstance(summary, str) else text_of(summary) if is_given(summary) else ""
    parts = comma_separated(said.lower())
    unknown = [part for part in parts if part not in {*_KNOWN, _NONE, "copy"}]
    if unknown:
        known = f"Error: the summaries are {', '.join(_KNOWN)} and none."
        not_kept(f"define_metric({safe_repr(name)}, summary={safe_repr(summary)})", known)
    # Without `copy`, which W&B has deprecated: it asks for the last value, which the summary has anyway.
    return tuple(part for part in parts if part in {*_KNOWN, _NONE})


def _together(before: tuple[str, ...], said: tuple[str, ...]) -> tuple[str, ...]:
    """Return what two definitions of one name ask for; the later one ends a `none` of the earlier one."""
    kept = tuple(wanted for wanted in before if wanted != _NONE) if said else before
    return tuple(dict.fromkeys((*kept, *said)))


def _goal(name: str, goal: str | None) -> str | None:
    if goal is None or (isinstance(goal, str) and goal in {"minimize", "maximize"}):
        return goal
    not_kept(
        f"define_metric({safe_repr(name)}, goal={safe_repr(goal)})",
        "Error: it is 'minimize' or 'maximize'; the smallest is best.",
    )
    return "minimize"

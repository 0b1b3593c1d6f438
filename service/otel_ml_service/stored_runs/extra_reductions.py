"""`--reduce NAME=REDUCTION`: answers that nobody asked for when the run was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from otel_ml.exceptions import ConfigError, WireError
from otel_ml.wire.reduction import Reduction
from otel_ml_service.aggregation.converted_points import untold_of
from otel_ml_service.aggregation.fold import COUNT
from otel_ml_service.aggregation.observation import Fragment, Observation, Partials, Sent

__all__ = ["ExtraReductions"]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Metrics whose name matches the glob `name` are also reduced by `reduction`."""

    name: str
    reduction: Reduction

    def added_to(self, asked: Reduction) -> Reduction:
        """Return both: what the user asked for keeps its names, adding one never renames (docs/protocol.md §2.10).

        A default stays one, and gives way to what another rank asks for: there the rule is added, too.
        """
        mine = self.reduction
        # A series has one way in which a rank's own records combine: where the rule names another one, it stands in
        # place of what was asked for.
        if mine.within != asked.within and mine.within is not None:
            return mine
        new = tuple(one for one in mine.across if one not in asked.across)
        return replace(asked, across=asked.across + new, over=mine.over or asked.over)


class ExtraReductions:
    """The rules of one replay.

    Args:
        rules: `NAME=REDUCTION`; NAME may be a glob, REDUCTION is the wire's grammar: `rank`, `max,std`, `sum>max`.

    Raises:
        ConfigError: with every rule that is none.
    """

    def __init__(self, rules: Sequence[str]) -> None:
        problems: list[str] = []
        self._rules = [rule for text in rules if (rule := _parsed(text, problems)) is not None]
        self._used: set[_Rule] = set()
        # A dict as a set that keeps its order: each sentence once.
        self._impossible: dict[str, None] = {}
        self._seen: set[str] = set()
        if problems:
            raise ConfigError(*problems)

    def __bool__(self) -> bool:
        """Whether there are any rules."""
        return bool(self._rules)

    def applied(self, observation: Observation) -> Iterator[Observation]:
        """Yield the observation in parts of which each has one reduction."""
        if self._rules and isinstance(observation, Sent):
            yield from self._split(observation)
        else:
            yield observation

    def check(self) -> None:
        """Say which rules fitted nothing, and what cannot be told from what was sent.

        Raises:
            ConfigError: there are such.
        """
        unused = [rule for rule in self._rules if rule not in self._used]
        names = ", ".join(sorted(self._seen)[:12])
        problems = [
            f"--reduce {rule.name}={rule.reduction}: no metric is called so. There are: {names}." for rule in unused
        ]
        problems += self._impossible
        if problems:
            raise ConfigError(*problems)

    def _split(self, sent: Sent) -> Iterator[Sent]:
        rows: dict[Reduction | None, list[int]] = {}
        partials = sent.partials.unpack()
        asked = sent.reduction or Reduction()
        for row, key in enumerate(partials.series):
            wanted = self._reduction(key.name, asked, partials, row)
            # What no rule fits stays with what it was sent with, which may be nothing.
            rows.setdefault(sent.reduction if wanted is asked else wanted, []).append(row)
        for reduction, chosen in rows.items():
            part = sent if len(rows) == 1 else _some(sent, partials, chosen)
            yield part._replace(reduction=reduction)  # type: ignore[arg-type] # a fragment always has one

    def _reduction(self, name: str, asked: Reduction, partials: Partials, row: int) -> Reduction:
        self._seen.add(name)
        wanted = asked
        for rule in self._rules:
            if fnmatchcase(name, rule.name):
                self._used.add(rule)
                self._note_impossible(rule, name, partials, row)
                wanted = rule.added_to(wanted)
        return wanted

    def _note_impossible(self, rule: _Rule, name: str, partials: Partials, row: int) -> None:
        mine, kind = rule.reduction, partials.series[row].kind
        # A single record is the first and the last one, and its statistics are known.
        lone = partials.stats[row, COUNT] == 1
        lacks = ""
        if mine.within is None and mine.needs_buckets and kind != "buckets":
            lacks = "buckets"
        elif mine.needs_order and kind != "order" and not lone:
            lacks = "the order of its records"
        elif not lone and (untold := untold_of(mine.extra_statistics, partials.stats[row])):
            lacks = f"its {untold}"
        if lacks:
            self._impossible[
                f"--reduce {rule.name}={mine}: {name!r} was sent without {lacks}. "
                "Ask for that when recording: otel_ml.define_metric(name, reduce=…)."
            ] = None


def _some(sent: Sent, partials: Partials, rows: list[int]) -> Sent:
    return sent._replace(partials=partials.some(rows)) if isinstance(sent, Fragment) else sent.some(rows)


def _parsed(text: str, problems: list[str]) -> _Rule | None:
    name, equals, reduction = text.partition("=")
    if not name or not equals:
        problems.append(f"--reduce {text!r} is not NAME=REDUCTION; write for example --reduce loss=rank.")
        return None
    try:
        return _Rule(name, Reduction.parse(reduction))
    except WireError as error:
        problems.append(f"--reduce {text}: {error}")
        return None

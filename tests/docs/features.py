"""The table of features, from the markers of the tests that show them.

A test says what it shows: `@pytest.mark.feature("N1", "better", "why, in a phrase")`, also in a `pytestmark` of a
module or a class. The files are parsed, not imported.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.catalogue_of_features import FEATURES, NOT_APPLICABLE, SYSTEMS
from tests.e2e.jobs import ROOT

__all__ = ["Shown", "counted", "markdown", "markers_in", "sections", "shown", "table"]

VERDICTS = ("better", "yes")
"""The first one counts, where tests say both."""

MOST_TESTS = 3

_Marked = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Shown:
    """A marker: what a test shows, and where it stands."""

    feature: str
    verdict: str
    note: str
    test: str


def markers_in(source: Path) -> Iterator[Shown]:
    """Yield the markers of one file.

    Raises:
        ValueError: a marker names a feature or a verdict that there is not.
    """
    name = source.relative_to(ROOT).as_posix() if source.is_relative_to(ROOT) else source.name
    yield from _in_body(ast.parse(source.read_text(encoding="utf-8")).body, name, name)


def _in_body(body: Iterable[ast.stmt], name: str, source: str) -> Iterator[Shown]:
    for node in body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_pytestmark(node):
            value = node.value
            found = value.elts if isinstance(value, (ast.List, ast.Tuple)) else [value]
            yield from (_shown(call, name, source) for call in found if _is_feature(call))
        elif isinstance(node, _Marked):
            inner = f"{name}::{node.name}"
            yield from (_shown(call, inner, source) for call in node.decorator_list if _is_feature(call))
            if isinstance(node, ast.ClassDef):
                yield from _in_body(node.body, inner, source)


def _is_pytestmark(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)


def _is_feature(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.feature"


def _shown(call: ast.expr, test: str, source: str) -> Shown:
    assert isinstance(call, ast.Call)
    place = f"{source}:{call.lineno}"
    try:
        feature, verdict, note = (ast.literal_eval(argument) for argument in call.args)
    except ValueError:
        raise ValueError(f"{place}: expected feature('N1', 'yes', 'why'), got {ast.unparse(call)}.") from None
    if feature not in FEATURES:
        raise ValueError(f"{place}: there is no feature {feature!r}.")
    if verdict not in VERDICTS:
        raise ValueError(f"{place}: expected a verdict of {VERDICTS}, got {verdict!r}.")
    return Shown(feature, verdict, note, test)


def shown() -> Sequence[Shown]:
    """Return the markers of all tests, in the order of files and lines."""
    return [found for source in sorted((ROOT / "tests").rglob("test_*.py")) for found in markers_in(source)]


def table(system: str, markers: Iterable[Shown]) -> str:
    """Return the table of the features of one system, `N` and so on."""
    by_feature: defaultdict[str, list[Shown]] = defaultdict(list)
    for marker in markers:
        by_feature[marker.feature].append(marker)
    rows = (_row(feature, by_feature[feature]) for feature in FEATURES if feature[0] == system)
    return "\n".join(["| id | feature | verdict | how, or why not | shown by |", "|---|---|---|---|---|", *rows])


def counted(markers: Iterable[Shown]) -> Mapping[str, int]:
    """Return how many features have each verdict."""
    best = {marker.feature for marker in markers}
    left_out = set(NOT_APPLICABLE) - best
    return {"shown": len(best), "not applicable": len(left_out), "missing": len(FEATURES) - len(best) - len(left_out)}


def markdown() -> str:
    """Return the generated part of `docs/features.md`."""
    markers = shown()
    numbers = ", ".join(f"{number} {verdict}" for verdict, number in counted(markers).items())
    parts = [f"{len(FEATURES)} features: {numbers}."]
    parts += [f"## {name}\n\n{table(system, markers)}" for system, name in SYSTEMS.items()]
    return "\n\n".join(parts)


def sections() -> Mapping[str, Callable[[], str]]:
    """Return the generated parts of the pages: `features`, and `features-wandb` and so on for each interface."""
    own: dict[str, list[Path]] = {}
    for source in sorted((ROOT / "tests" / "unit" / "otel_ml" / "compat").glob("test_*.py")):
        own.setdefault(f"features-{source.stem.split('_')[1]}", []).append(source)
    return {"features": markdown, **{name: (lambda sources=sources: _of(sources)) for name, sources in own.items()}}


def _of(sources: Iterable[Path]) -> str:
    found = (marker for source in sources for marker in markers_in(source))
    rows = sorted(found, key=lambda marker: (marker.feature[0], int(marker.feature[1:])))
    lines = (f"| {m.feature} | {FEATURES[m.feature]} | {m.verdict} | {m.note} | `{_name(m.test)}` |" for m in rows)
    return "\n".join(["| id | feature | verdict | how | shown by |", "|---|---|---|---|---|", *lines])


def _name(test: str) -> str:
    return test.rpartition("::")[2]


def _row(feature: str, markers: Sequence[Shown]) -> str:
    title = FEATURES[feature]
    if not markers:
        why = NOT_APPLICABLE.get(feature, "")
        return f"| {feature} | {title} | {'not applicable' if why else '**missing**'} | {why} | |"
    chosen = min(markers, key=lambda marker: VERDICTS.index(marker.verdict))
    tests = list(dict.fromkeys([chosen.test, *(marker.test for marker in markers)]))
    links = "<br>".join(f"`{test}`" for test in tests[:MOST_TESTS])
    return f"| {feature} | {title} | {chosen.verdict} | {chosen.note} | {links} |"

"""The parts of the documentation that are generated from the code: `python -m tests.docs.tables` writes them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from otel_ml.env import ASKING
from otel_ml_exporters.registry import BUILT_IN, exporter_class
from otel_ml_service.cli.env_command import markdown
from otel_ml_service.telemetry import CATALOGUE
from tests.benchmarks import report
from tests.benchmarks.gpu import page
from tests.docs.bounds import markdown as bounds
from tests.docs.features import sections as features
from tests.docs.launchers import launchers, searches
from tests.docs.messages import catalogue
from tests.docs.originals import differences, names, suites
from tests.docs.registry import tables
from tests.e2e.jobs import ROOT

__all__ = ["filled", "pages"]

_SECTION = re.compile(r"<!-- generated: (?P<name>[\w-]+) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)
_CLAUSE = re.compile(r"^(?:\*\*)?(Guarantee|Ordering|Non-finite values|Names)(?:\*\*)?:\s", re.MULTILINE)


def telemetry() -> str:
    rows = (f"| `{name}` | {kind} | {meaning} |" for name, (kind, meaning) in CATALOGUE.items())
    return "\n".join(["| name | kind | meaning |", "|---|---|---|", *rows])


def clauses(exporter: str) -> list[tuple[str, str]]:
    """Return the four fixed clauses at the end of an exporter's docstring, or of its module's."""
    found = exporter_class(exporter)
    docstrings = (inspect.getdoc(found) or "", sys.modules[found.__module__].__doc__ or "")
    _, *parts = _CLAUSE.split(next(text for text in docstrings if _CLAUSE.search(text)))
    texts = (" ".join(text.split()) for text in parts[1::2])
    return list(zip(parts[::2], texts, strict=True))


def guarantees(exporter: str) -> str:
    rows = (f"| **{name}** | {text} |" for name, text in clauses(exporter))
    return "\n".join(["| | |", "|---|---|", *rows])


def exporters() -> str:
    promises = {name: re.split(r"[:.] ", dict(clauses(name))["Guarantee"])[0] for name in sorted(BUILT_IN)}
    rows = (f"| [`{name}`]({name}.md) | {promise.rstrip('.')} |" for name, promise in promises.items())
    return "\n".join(["| exporter | guarantee |", "|---|---|", *rows])


def migrations() -> str:
    """Return a list of all guides from another system."""
    guides = sorted(page for page in (ROOT / "docs" / "migrate").glob("*.md") if page.stem != "index")
    titles = ((page.name, page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")) for page in guides)
    return "\n".join(f"- [{title}]({name})" for name, title in titles)


def asking() -> str:
    """Return the variables that ask for a run where nobody calls `init()`."""
    return " · ".join(f"`{variable.name}`" for variable in ASKING)


SECTIONS: Mapping[str, Callable[[], str]] = {
    "environment": markdown,
    "asking": asking,
    "telemetry": telemetry,
    "exporters": exporters,
    "migrations": migrations,
    "messages": catalogue,
    **report.SECTIONS,
    **page.SECTIONS,
    "bounds": bounds,
    "launchers": launchers,
    "searches": searches,
    "compat-names": names,
    "compat-suites": suites,
    "compat-differences": differences,
    **features(),
    **{f"names-{kind}": (lambda kind=kind: tables(kind)) for kind in ("attributes", "metrics", "events", "spans")},
    **{name: (lambda name=name: guarantees(name)) for name in BUILT_IN},
}


def pages() -> Iterator[Path]:
    """Yield the pages that have a generated part."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return (page for page in every if _SECTION.search(page.read_text(encoding="utf-8")))


def filled(text: str) -> str:
    """Return a page's text with its generated parts as the code is now."""

    def fill(match: re.Match[str]) -> str:
        return f"<!-- generated: {match['name']} -->\n\n{SECTIONS[match['name']]()}\n\n<!-- end -->"

    return _SECTION.sub(fill, text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")

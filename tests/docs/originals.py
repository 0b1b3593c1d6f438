"""The page that compares with the originals: counts of names as the tests find them, and figures of their suites."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.originals.compared import counted, verdicts
from tests.originals.figures import Figures, kept
from tests.originals.originals import ORIGINALS, Original, names_of
from tests.originals.suites import SUITES, Suite

__all__ = ["differences", "names", "suites"]

_VERDICTS = ("as there", "better", "accepted and reported", "its own package's", "not here")


def names() -> str:
    """Return the table of names: original → how many of each verdict."""
    rows = [
        f"| original | version | names | {' | '.join(_VERDICTS)} | what differs |",
        "|---" * (len(_VERDICTS) + 4) + "|",
    ]
    for original in ORIGINALS:
        found = counted(original)
        counts = " | ".join(str(found[verdict] or "") for verdict in _VERDICTS)
        page = f"[{original.page.removesuffix('.md')}]({original.page})"
        rows.append(f"| {original.name} | {original.version} | {len(names_of(original.key))} | {counts} | {page} |")
    return "\n".join(rows)


def differences() -> str:
    """Return every name that is not simply as there, with how it is."""
    return "\n\n".join("\n".join([f"### {one.name}", "", *_lists(one)]) for one in ORIGINALS)


def _lists(original: Original) -> Iterator[str]:
    yield from _list("Better", original.better)
    yield from _list("Accepted, and reported at the call", original.said)
    own = [name for name, verdict in verdicts(original).items() if verdict == "its own package's"]
    if own:
        yield (
            f"- **Of the package `{original.package}` itself**, where it is installed; said, as it knows nothing of "
            f"the run here: {', '.join(f'`{name}`' for name in own)}"
        )
    yield from _list("Not here, and reported where it is asked for", original.absent)


def _list(title: str, found: Mapping[str, str]) -> Iterator[str]:
    together: dict[str, list[str]] = {}
    for name, how in found.items():
        together.setdefault(how.rstrip("."), []).append(name)
    if together:
        parts = (f"{', '.join(f'`{name}`' for name in names)}: {how}" for how, names in together.items())
        yield f"- **{title}.** {'; '.join(parts)}"


def suites() -> str:
    """Return the table of the originals' own suites, as `tests.originals.run` has found them."""
    rows = ["| original | commit | passed | command | translated by hand | what does not pass |", "|---" * 6 + "|"]
    figures = kept()
    rows += (_suite(suite, figures[suite.name]) for suite in SUITES if suite.name in figures)
    return "\n".join(rows)


def _suite(suite: Suite, figures: Figures) -> str:
    command = f"`python -m tests.originals.run FOLDER {suite.name}`"
    passed = f"{figures.passed} of {figures.run}"
    cells = (suite.original, figures.commit[:7], passed, command, _translated(figures), _missing(suite, figures))
    return f"| {' | '.join(cells)} |"


def _translated(figures: Figures) -> str:
    if not figures.translated:
        return ""
    return f"yes; {len(figures.left_out)} not" if figures.left_out else "yes"


def _missing(suite: Suite, figures: Figures) -> str:
    """Return which tests do not pass, by their reasons, and what else is said of the suite."""
    together: dict[str, dict[str, None]] = {}
    for test in figures.failed:
        together.setdefault(suite.reason(test), {})[f"`{test.partition('::')[2].partition('[')[0]}`"] = None
    said = [f"{', '.join(tests)}: {reason}" for reason, tests in together.items()]
    return ". ".join(text[:1].upper() + text[1:] for text in filter(None, ["; ".join(said), suite.remark]))

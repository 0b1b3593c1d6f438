"""English that a reader stumbles over: `python -m tests.docs.english` prints each place, and fails if there is one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.jobs import ROOT

__all__ = ["found_in"]

WRONG: Mapping[str, str] = {
    "«|»": 'straight quotes: "…"',
    r"(?<![Tt]here )\b(?:is|are) no (?!longer|later|more|reason|way|need|such|one|news|other)(?=\w)": '"is not a …"',
    r"\bany more\b(?! than)": '"no longer"',
    r"\bmisspelt\b": '"misspelled"',
    r"(?:[Cc]ol|[Nn]eighb|[Bb]ehavi|[Ff]av|[Hh]on|[Ll]ab)ours?\b": 'American English: "-or"',
    r"(?<![/.])\b_?(?:is_)?(?i:recogn|normal|initial|organ|sanit|summar|optim|quant|special|synchron|token|util)"
    r"is(?:e|es|ed|ing|ation)\b": 'American English: "-ize"',
    r"\b(?i:gr)ey\b": '"gray"',
    r"\b(?i:learnt|travelled|levelled|modelled|labelled|signalled)\b": 'American English: "-ed"',
}
"""What is wrong → what to write."""

FORMER = "the former spelling"
"""What a line says that has to name what is spelled otherwise now. Keys that backends have, `a/b`, stay as they are."""

_TEXTS = ("docs/**/*.md", "*.md", "otel_ml/**/*.py", "service/**/*.py", "exporters/**/*.py")
_RECORDS = ("docs/adr/", "CHANGELOG.md")
"""Written once, of their time."""


def found_in(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, what is wrong, and what to write.

    Examples:
        >>> [*found_in("There is no step.\\nIt is no step.\\nNo more.")]
        [(2, 'is no ', '"is not a …"')]
    """
    for number, line in enumerate(text.splitlines(), 1):
        if FORMER in line:
            continue
        for wrong, instead in WRONG.items():
            for match in re.finditer(wrong, line):
                yield number, match[0], instead


def texts() -> Iterator[Path]:
    for pattern in _TEXTS:
        yield from (path for path in sorted(ROOT.glob(pattern)) if not str(path.relative_to(ROOT)).startswith(_RECORDS))


def main() -> None:
    places = [
        f"{path.relative_to(ROOT)}:{number}: {wrong!r}; write {instead}"
        for path in texts()
        for number, wrong, instead in found_in(path.read_text(encoding="utf-8"))
    ]
    print("\n".join(places), end="\n" if places else "")
    sys.exit(bool(places))


if __name__ == "__main__":
    main()

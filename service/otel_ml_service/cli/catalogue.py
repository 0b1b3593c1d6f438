"""The catalogue of messages: the page `docs/errors.md`, which the wheel brings along (`force-include`)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["Catalogue", "Section", "catalogue"]

_INSTALLED = Path(__file__).with_name("errors.md")
_CHECKOUT = Path(__file__).parents[3] / "docs" / "errors.md"

_HEADING = re.compile(r"^(?P<marks>##|###) (?P<title>.+)$", re.MULTILINE)
# In the page's list of messages: `**[spool-full](#spool-full)**`, then a line for each message of that section.
_MESSAGES_OF = re.compile(r"^\*\*\[(?P<slug>[a-z-]+)\]\(#[a-z-]+\)\*\*$")
_MESSAGE = re.compile(r"^- <a id=\"[^\"]+\"></a>`` (?P<text>.+) ``$")
_COMMAND = re.compile(r"\(otel-ml explain ([a-z -]+)\)")
_SLUG = re.compile(r"[a-z]+(-[a-z]+)*")

_FORMER: Mapping[str, str] = {"quantised-tensor": "quantized-tensor"}  # the former spelling
"""Slug of messages that are kept with runs → its section."""


@dataclass(frozen=True, slots=True)
class Section:
    """What the page says of one kind of message.

    Attributes:
        slug: its heading, by which messages name it.
        part: the heading above it.
        line: what has happened, in one line.
        text: what it means, why it happens, what to do; Markdown paragraphs.
    """

    slug: str
    part: str
    line: str
    text: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All sections in the order of the page.

    Attributes:
        messages: every message, with `…` for what is filled in → its slug.
    """

    sections: Mapping[str, Section]
    messages: Mapping[str, str] = field(default_factory=dict)

    def find(self, what: str) -> tuple[Section, ...]:
        """Return the sections of one or more slugs, or of a message as somebody saw it; none where it is unknown."""
        said = " ".join(what.split())
        # What a person types are slugs as a rule. A message names its slugs at its end; only one without that part, as
        # where it was cut off, is compared with all messages.
        return self._named(said.lower().replace("_", "-").split()) or self._quoted(said) or self._alike(said)

    def near(self, what: str) -> tuple[str, ...]:
        """Return the slugs that `what` may mean, the nearest first."""
        slug = what.lower().replace("_", "-")
        by_name = difflib.get_close_matches(slug, self.sections, n=3)
        by_text = difflib.get_close_matches(" ".join(what.split()), self.messages, n=3, cutoff=0.4)
        return tuple(dict.fromkeys([*by_name, *(self.messages[text] for text in by_text)]))[:3]

    def _named(self, words: Iterable[str]) -> tuple[Section, ...]:
        names = [_FORMER.get(word, word) for word in words]
        return tuple(self.sections[name] for name in names) if all(name in self.sections for name in names) else ()

    def _quoted(self, said: str) -> tuple[Section, ...]:
        """Return the sections that the text names itself, each once."""
        words = (word for command in _COMMAND.findall(said) for word in command.split())
        # A message with several slugs may name one twice.
        names = dict.fromkeys(_FORMER.get(word, word) for word in words)
        return tuple(self.sections[name] for name in names if name in self.sections)

    def _alike(self, said: str) -> tuple[Section, ...]:
        """Return the section of the message in `said` that has most words of its own."""
        fitting = [text for text in self.messages if _pattern(text).search(said)]
        if not fitting:
            return ()
        return (self.sections[self.messages[max(fitting, key=_fixed)]],)


@cache
def catalogue() -> Catalogue:
    """Return the catalogue of this installation."""
    page = _INSTALLED if _INSTALLED.is_file() else _CHECKOUT
    return parsed(page.read_text(encoding="utf-8"))


def parsed(page: str) -> Catalogue:
    r"""Read a page.

    Examples:
        >>> page = "## Steps\n\n### no-step\n\nNo step is set.\n\n**Means:** …\n\n## Every message\n"
        >>> parsed(page).find("NO_STEP")
        (Section(slug='no-step', part='Steps', line='No step is set.', text='**Means:** …'),)
    """
    sections: dict[str, Section] = {}
    headings = list(_HEADING.finditer(page))
    part = ""
    for heading, after in zip(headings, [*headings[1:], None], strict=True):
        if heading["marks"] == "##":
            part = heading["title"]
        # The text of a section goes up to the next heading, whichever that is.
        elif _SLUG.fullmatch(heading["title"]):
            text = page[heading.end() : after.start() if after else len(page)]
            line, _, rest = text.strip().partition("\n\n")
            sections[heading["title"]] = Section(heading["title"], part, line, rest)
    return Catalogue(sections, {text: slug for text, slug in _listed(page) if slug in sections})


def _listed(page: str) -> Iterable[tuple[str, str]]:
    slug = ""
    for row in page.splitlines():
        if found := _MESSAGES_OF.match(row):
            slug = found["slug"]
        elif found := _MESSAGE.match(row):
            yield found["text"], slug


@cache
def _pattern(text: str) -> re.Pattern[str]:
    # Searched for and not matched as a whole: who copies a line often has what stands before the message, too. A `…` at
    # an end would ask for nothing, so it is left out.
    parts = (re.escape(part) for part in text.strip("… ").split("…"))
    return re.compile(".*?".join(parts))


def _fixed(text: str) -> int:
    return len(text.replace("…", ""))

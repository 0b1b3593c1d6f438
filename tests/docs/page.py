"""The code blocks of a Markdown page, and what is to be done with each.

Blocks of `python`, `bash` and `console`-free text are told apart by their language; a comment on the line above a block
says what the language cannot::

    <!-- output -->                     the block is what the block before it prints; `…` stands for any text
    <!-- file: train.py -->             the block is the content of that file in the page's folder
    <!-- run by: .ci/run -->            the block's lines are run by that file of the repository, not by the page's test
    <!-- when written -->               the block runs once the services of the page's runs have ended
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "blocks_of"]

_FENCE = re.compile(
    r"(?:^[ ]*<!-- (?P<marker>[a-z ]+)(?:: (?P<argument>[^>]+?))? -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    marker: str | None = None
    argument: str | None = None


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        indent = len(match["indent"])
        code = "".join(line[indent:] if line.strip() else line for line in match["code"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("code"))
        yield Block(page, line + 1, match["language"], code, match["marker"], match["argument"])

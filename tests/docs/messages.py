"""Every sentence that the code says to a person, found in the source: what `docs/errors.md` has to list."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.jobs import ROOT

__all__ = ["catalogue", "messages_in"]

PACKAGES = (ROOT / "otel_ml", ROOT / "exporters" / "otel_ml_exporters")
SAYING = frozenset({"say", "_say", "wrong", "drop", "notice", "_notice", "say_once"})

PARTS = {
    "otel_ml": "Recording",
    "otel_ml/_internal": "Recording",
    "otel_ml/wire": "Names and reductions",
    "otel_ml_exporters/aggregation": "Closing of steps",
    "otel_ml_exporters/backends": "Exporters",
    "otel_ml_exporters/delivery": "Exporters",
    "otel_ml_exporters/cli": "Command line",
    "otel_ml_exporters/demo": "Command line",
    "otel_ml_exporters/runs": "Command line",
    "otel_ml_exporters/receiver": "Receiver",
    "otel_ml_exporters/storage": "Storage",
    "otel_ml_exporters": "Service",
}


def messages_in(source: Path) -> Iterator[str]:
    """Yield the sentences of one file, with `…` where a value is filled in."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and says(node.func):
            yield from filter(is_sentence, map(template, node.args))


def says(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in SAYING or name.endswith("Error")


def is_sentence(text: str) -> bool:
    return text.endswith(".") and len(re.findall(r"[a-z]{2,}", text)) >= 3


def template(node: ast.expr) -> str:
    """Return the text of a string expression, or an empty one where it is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(template_part, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return ""


def template_part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "…"


def part_of(source: Path) -> str:
    """Return the heading under which a file's messages stand: that of its nearest known folder."""
    relative = source.relative_to(ROOT if source.is_relative_to(PACKAGES[0]) else ROOT / "exporters")
    return next(PARTS[str(folder)] for folder in relative.parents if str(folder) in PARTS)


def catalogue() -> str:
    """Return the list of all messages as Markdown, each with an anchor of its own."""
    parts: dict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for source in package.rglob("*.py"):
            parts[part_of(source)].update(messages_in(source))
    return "\n\n".join(f"### {part}\n\n{listed(parts[part])}" for part in dict.fromkeys(PARTS.values()) if parts[part])


def listed(messages: set[str]) -> str:
    return "\n".join(f'- <a id="{anchor(message)}"></a>`` {message} ``' for message in sorted(messages))


def anchor(message: str) -> str:
    """Return a message's anchor: stable as long as the message is the same."""
    return "m-" + hashlib.sha256(message.encode()).hexdigest()[:8]

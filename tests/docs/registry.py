"""The registry of names in `semconv/`, and its tables for the documentation."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.jobs import ROOT

__all__ = ["REGISTRY", "definitions", "tables", "type_of"]

REGISTRY = ROOT / "semconv"

_TEMPLATE = re.compile(r"template\[(.+)\]")


def files() -> Sequence[Path]:
    """Return the files that define names."""
    return sorted(path for path in REGISTRY.glob("*.yaml") if path.name != "registry_manifest.yaml")


@functools.cache
def definitions(kind: str) -> Mapping[str, Mapping[str, Any]]:
    """Return name → definition, of `attributes`, `metrics`, `events` or `spans`."""
    by = {"attributes": "key", "spans": "type"}.get(kind, "name")
    parsed = [yaml.safe_load(path.read_text()) for path in files()]
    return {one[by]: one for content in parsed for one in content.get(kind, ())}


def type_of(attribute: str) -> str | None:
    """Return the type of an attribute that is registered, or of one of a registered template."""
    known = definitions("attributes")
    if attribute in known:
        return _TEMPLATE.sub(r"\1", known[attribute]["type"])
    matches = (_TEMPLATE.fullmatch(one["type"]) for key, one in known.items() if attribute.startswith(f"{key}."))
    return next((match[1] for match in matches if match), None)


def tables(kind: str) -> str:
    """Return what the registry says of a kind of name, as a table."""
    if kind == "attributes":
        rows = ((f"{key}.<key>" if "template" in one["type"] else key, one) for key, one in definitions(kind).items())
        lines = (f"| `{key}` | {_typed(one['type'])} | {one['brief']} |" for key, one in rows)
        return "\n".join(["| attribute | type | meaning |", "|---|---|---|", *lines])
    lines = (f"| `{name}` | {one['brief']} | {', '.join(_referred(one))} |" for name, one in definitions(kind).items())
    return "\n".join([f"| {kind.removesuffix('s')} | meaning | attributes |", "|---|---|---|", *lines])


def _typed(kind: str) -> str:
    match = _TEMPLATE.fullmatch(kind)
    return match[1] if match else kind.replace("[]", " array").strip()


def _referred(one: Mapping[str, Any]) -> Iterator[str]:
    return (f"`{attribute['ref']}`" for attribute in one.get("attributes", ()))

"""Each promise of the README is the name of a test."""

from __future__ import annotations

import ast
import re

from tests.e2e.jobs import ROOT


def promises() -> list[str]:
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("## What you can rely on")[2].partition("## ")[0]
    )
    return re.findall(r"^- (.+)$", section, re.MULTILINE)


def all_test_names() -> set[str]:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py"))
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def as_name(sentence: str) -> str:
    return "test_" + re.sub(r"[^a-z0-9]+", "_", sentence.lower()).strip("_")


def test_every_promise_of_the_readme_is_the_name_of_a_test() -> None:
    assert len(promises()) == 7
    assert {as_name(promise) for promise in promises()} - all_test_names() == set()

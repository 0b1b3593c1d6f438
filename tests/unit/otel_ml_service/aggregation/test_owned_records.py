"""What the engine remembers is changed by the class that owns it: nobody else sets an attribute of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import otel_ml_service.aggregation

PACKAGE = Path(otel_ml_service.aggregation.__file__).parent
NOT_KEPT = {"reduce.py": {"result"}}
"""Module → what is no record: the answer of one call, filled in value by value while it is made."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def foreign_writes(source: str, allowed: frozenset[str] = frozenset()) -> list[str]:
    """Return the statements that set an attribute of an object from outside of its class."""
    found = _writes(ast.parse(source), None, allowed)
    return [f"{line}: {text}" for line, text in sorted(found)]


def _writes(node: ast.AST, owner: str | None, own: frozenset[str]) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.ClassDef):
        owner = node.name
    elif isinstance(node, Function):
        own |= _of_own_class(node, owner)
    if isinstance(node, ast.stmt) and any(_is_foreign(place, own) for place in _places(node)):
        yield node.lineno, ast.unparse(node).partition("\n")[0]
    for child in ast.iter_child_nodes(node):
        yield from _writes(child, owner, own)


def _places(statement: ast.stmt) -> Iterator[ast.expr]:
    """Yield the objects of which the statement sets or deletes an attribute."""
    if isinstance(statement, ast.Assign | ast.Delete):
        targets = statement.targets
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For):
        targets = [statement.target]
    elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
        yield from call.args[:1] if ast.unparse(call.func) in {"setattr", "delattr", "object.__setattr__"} else ()
        return
    else:
        return
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                yield node.value


def _is_foreign(place: ast.expr, own: frozenset[str]) -> bool:
    return not (isinstance(place, ast.Name) and place.id in own)


def _of_own_class(function: Function, owner: str | None) -> frozenset[str]:
    """Return the names of a method that hold objects of its own class."""
    if owner is None:
        return frozenset()
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    typed = {one.arg for one in arguments if one.annotation is not None and ast.unparse(one.annotation) == owner}
    made = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if ast.unparse(node.value.func) in {"cls", owner} or ast.unparse(node.value) == "copy(self)"
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset({"self"} | typed | made)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.name)
def test_a_record_is_changed_by_its_own_class_alone(path: Path) -> None:
    allowed = frozenset(NOT_KEPT.get(path.name, ()))

    assert foreign_writes(path.read_text(encoding="utf-8"), allowed) == []


@pytest.mark.parametrize(
    "line",
    [
        "run.now = 1",
        "self.run.now = 1",
        "run.events += 1",
        "writer.died, other = True, 1",
        "writer.died: bool = True",
        "del writer.died",
        "runs[0].now = 1",
        "setattr(run, name, 1)",
        "for run.now in times: pass",
    ],
)
def test_a_write_from_outside_is_seen(line: str) -> None:
    assert foreign_writes(f"class Engine:\n    def go(self, run: Run) -> None:\n        {line}\n")


@pytest.mark.parametrize(
    "method",
    [
        "def go(self): self.now = 1",
        "def go(self, other: Run): other.now = 1",
        "def go(self):\n        setattr(self, 'now', 1)",
        "def go(self):\n        new = copy(self)\n        new.now = 1",
        "@classmethod\n    def go(cls):\n        run = cls()\n        run.now = 1",
    ],
)
def test_a_class_changes_what_is_its_own(method: str) -> None:
    assert not foreign_writes(f"class Run:\n    {method}\n")


def test_a_function_owns_nothing() -> None:
    assert foreign_writes("def go(self):\n    self.now = 1\n")

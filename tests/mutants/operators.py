"""Every small mistake that may be made in one module, each as a change of its text."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Mutant", "mutants_of"]

_COMPARED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is"), ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}  # fmt: skip
_COMPUTED = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"), ast.Pow: ("**", "*"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.BitXor: ("^", "&"),
    ast.LShift: ("<<", ">>"), ast.RShift: (">>", "<<"),
}  # fmt: skip
_LEFT_OUT = (ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)
_DECLARES = {"__all__", "__slots__"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: bytes of a module, and what stands there instead.

    Attributes:
        kind: the operator that made it.
        line: where it is, from 1.
        lines: of the statement it is in, or of that statement's head; all where a module's import runs it.
        start: the first byte that it replaces.
        end: the byte behind the last.
        text: what stands there instead.
    """

    kind: str
    line: int
    lines: range
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """Return the module with the mistake in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants_of(source: bytes) -> list[Mutant]:
    """Return every mistake that the operators make in a module, from top to bottom; each of them compiles."""
    made = _Making(source)
    made.visit(ast.parse(source))
    return sorted(set(made.mutants), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


class _Making(ast.NodeVisitor):
    """A walk over what runs: annotations, imports, texts and what a type checker alone reads stay as they are."""

    def __init__(self, source: bytes) -> None:
        self.mutants: list[Mutant] = []
        self._source = source
        lines = source.splitlines(keepends=True)
        self._lines = [0]
        for line in lines:
            self._lines.append(self._lines[-1] + len(line))
        self._statement = range(1, len(lines) + 1)
        self._is_in_function = False

    def visit(self, node: ast.AST) -> None:
        outer = self._statement
        if isinstance(node, ast.stmt) and self._is_in_function:
            self._statement = _head(node)
        super().visit(node)
        if isinstance(node, _LEFT_OUT):
            self._replace("a statement is left out", node, "pass")
        self._statement = outer

    def visit_Compare(self, node: ast.Compare) -> None:
        for operator, (left, right) in zip(node.ops, pairwise([node.left, *node.comparators]), strict=True):
            was, becomes = _COMPARED[type(operator)]
            self._replace_between("a comparison is another", left, right, was, becomes)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        was, becomes = _COMPUTED.get(type(node.op), ("", ""))
        if was and not _is_text(node.left) and not _is_text(node.right):
            self._replace_between("an operation is another", node.left, node.right, re.escape(was), becomes)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        was, becomes = _COMPUTED.get(type(node.op), ("", ""))
        if was and not _is_text(node.value):
            self._replace_between("an operation is another", node.target, node.value, re.escape(was), becomes)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        was, becomes = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            self._replace_between("`and` is `or`, or the other way round", left, right, rf"\b{was}\b", becomes)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._replace("a sign or a `not` is left out", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Leave out what `zip` is to raise where it is not given what it is: nobody gives it that."""
        node.keywords = [word for word in node.keywords if word.arg != "strict"]
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._negate(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("a constant is another", node, str(not node.value))
        elif isinstance(node.value, int | float) and node.value + 1 != node.value:
            self._replace("a constant is another", node, f"({self._text(node)} + 1)")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._replace("nothing is returned", node, "return None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call | ast.Await):
            self._replace("a statement is left out", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if any(isinstance(target, ast.Name) and target.id in _DECLARES for target in node.targets):
            return
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._replace("a statement is left out", node, "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for child in [*node.decorator_list, node.args]:
            self.visit(child)
        outer, self._is_in_function = self._is_in_function, True
        for statement in node.body:
            self.visit(statement)
        self._is_in_function = outer

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Leave the options of `@dataclass` as they are: whether there are slots is nobody's behavior."""
        for child in node.body:
            self.visit(child)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 (the name that `ast` looks for)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def _negate(self, test: ast.expr) -> None:
        self._replace("a condition is its opposite", test, f"(not ({self._text(test)}))")

    def _replace(self, kind: str, node: ast.AST, text: str) -> None:
        self.mutants.append(Mutant(kind, node.lineno, self._statement, *self._range(node), text))  # type: ignore[attr-defined]

    def _replace_between(self, kind: str, left: ast.expr, right: ast.expr, was: str, becomes: str) -> None:
        behind, before = self._range(left)[1], self._range(right)[0]
        found = re.search(was.encode(), self._source[behind:before])
        assert found is not None, (was, self._source[behind:before])
        start, end = behind + found.start(), behind + found.end()
        line = left.end_lineno or left.lineno
        self.mutants.append(Mutant(kind, line, self._statement, start, end, becomes))

    def _range(self, node: ast.AST) -> tuple[int, int]:
        at: ast.expr = node  # type: ignore[assignment]
        assert at.end_lineno is not None
        assert at.end_col_offset is not None
        return self._lines[at.lineno - 1] + at.col_offset, self._lines[at.end_lineno - 1] + at.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, end = self._range(node)
        return self._source[start:end].decode()


def _head(statement: ast.stmt) -> range:
    """Return the lines of a statement without those of the block below it."""
    block: list[ast.stmt] = getattr(statement, "body", [])
    end = block[0].lineno - 1 if block else statement.end_lineno
    return range(statement.lineno, max(end or 0, statement.lineno) + 1)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))

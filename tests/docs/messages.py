"""Every sentence that the code says to a person, found in the source, with its section of `docs/errors.md`."""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from otel_ml.exceptions import OtelMLError
from otel_ml_service.receiver.routes import _SLUGS as ANSWERS
from tests.e2e.jobs import ROOT

__all__ = ["Message", "anchor", "catalogue", "messages", "messages_in", "slugs"]

PACKAGES = {
    "otel_ml": ROOT / "otel_ml",
    "otel_ml_exporters": ROOT / "exporters" / "otel_ml_exporters",
    "otel_ml_service": ROOT / "service" / "otel_ml_service",
}

SAYING = frozenset({"say", "say_first", "_say", "wrong", "drop"})
"""Functions of (slug or reason, sentence)."""

CARRIED: Mapping[str, str] = {
    "otel_ml/compat/mlflow/runs.py": "not-kept",
    "otel_ml/compat/wandb/artifact.py": "not-kept",
    "otel_ml/exceptions.py": "wrong-setting",
    "otel_ml/_internal/record/append.py": "bad-value",  # or bad-weight: the reason of what was raised
    "otel_ml/_internal/transport/http.py": "not-acknowledged",
    "otel_ml/_internal/transport/own_socket.py": "not-acknowledged",
    "otel_ml/_internal/events/media.py": "bad-event",
    "otel_ml/wire/png.py": "bad-event",
    "otel_ml/_internal/transport/spool_segments.py": "spool-not-written",
    "otel_ml/wire/rendezvous.py": "rendezvous-folder",
    "otel_ml_service/delivery/failure_message.py": "exporter-failing",  # or what the exception names
    "otel_ml_service/receiver/columns.py": "rejected-points",
    "otel_ml_service/receiver/point_coordinates.py": "rejected-points",
    "otel_ml_service/receiver/log_events.py": "rejected-points",
    "otel_ml_service/receiver/metrics_decoder.py": "rejected-points",
    "otel_ml_service/receiver/own_names.py": "rejected-points",
    "otel_ml_service/receiver/partial_success.py": "rejected-points",  # or bad-resource
    "otel_ml_service/receiver/resource.py": "bad-resource",
    "otel_ml_service/receiver/span_decoder.py": "rejected-points",
    "otel_ml_exporters/registry.py": "wrong-setting",
}
"""File → the section of the message that quotes what is raised there as one of Python's own exceptions."""

NOT_FOR_USERS: Mapping[str, str] = {
    "otel_ml_service/cli/__init__.py": "a command of ours without its function",
    "otel_ml_service/storage/record_codec.py": "a record type of ours that was forgotten",
    "otel_ml_service/telemetry.py": "a counter of ours that was forgotten",
    "otel_ml_exporters/testing.py": "a plug-in's own test",
}
"""File → what Python's own exceptions mean there; a traceback says where."""

HOLDS: Mapping[str, str] = {"conflict": "conflict_of", "other_unit": "other_unit_of"}
"""Variable → the function whose sentence it holds."""

CLICK = frozenset({"UsageError", "BadParameter"})
"""Click names `--help` itself."""


@dataclass(frozen=True)
class Message:
    """A sentence with `…` where a value is filled in; `slug` is empty where the source names none."""

    text: str
    slug: str
    source: Path


@cache
def messages() -> tuple[Message, ...]:
    """Return all messages of both packages."""
    return tuple(message for source in sources() for message in messages_in(source))


def sources() -> Iterable[Path]:
    return (source for package in PACKAGES.values() for source in sorted(package.rglob("*.py")))


def messages_in(source: Path) -> Iterator[Message]:
    """Yield the messages of one file."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    error_classes, named = methods_of_errors(tree), {**makers(), **makers_in(tree), **named_in(tree)}
    for owner in statements(tree):
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            known = {**named, **named_in(owner)}
            for slug, sentence in found_in(owner, source, error_classes.get(owner, "")):
                for text in texts(sentence, known):
                    first, _, _ = text.partition("\n")
                    if is_sentence(first):
                        yield Message(first, slug, source)


def found_in(owner: ast.AST, source: Path, error_class: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield (slug, expression) of all that the function says, raises, or adds to a list of problems."""
    nodes = list(ast.walk(owner))
    problems = problems_slug(nodes)
    for node in nodes:
        if isinstance(node, ast.Call):
            yield from said(node, source, error_class, problems)
        elif isinstance(node, (ast.Assign, ast.AugAssign)) and is_problems(targets(node)):
            yield from ((problems, part) for part in parts(node.value))


def said(call: ast.Call, source: Path, error_class: str, problems: str) -> Iterator[tuple[str, ast.expr]]:
    name = name_of(call.func)
    arguments = call.args
    if name in SAYING and len(arguments) >= 2:
        yield constant(arguments[0]).replace("_", "-") or carried(source), arguments[1]
    elif name in SAYING and arguments:
        yield "", arguments[0]
    elif name == "explained" and len(arguments) == 2:
        yield constant(arguments[1]) or carried(source), arguments[0]
    elif name == "__init__" and error_class and arguments:
        yield slug_of(error_class, call), arguments[0]
    elif name.endswith("Error") and name not in CLICK and arguments:
        yield from raised(name, call, source)
    elif name == "_problem" or (name == "append" and is_problems([call.func])):
        yield problems, arguments[-1]
    elif name == "Setting" and len(arguments) == 4:
        yield "wrong-setting", arguments[3]
    elif name == "add" and isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "rejections":
        yield "rejected-points", arguments[0]
    elif name == "_error" and len(arguments) == 3:
        yield answered(arguments[1]), arguments[2]


def raised(name: str, call: ast.Call, source: Path) -> Iterator[tuple[str, ast.expr]]:
    first, *more = call.args
    if name == "BadRequestError":
        yield answered(first), more[0]
    elif name == "UndecodableError":
        yield "bad-request", first
    elif name == "OverloadedError":
        yield answered(ast.Constant(503)), first
    elif name == "MissingDependencyError":
        return  # its constructor has the sentence
    elif name in errors():
        yield slug_of(name, call), first
    elif not (relative(source) in NOT_FOR_USERS or name == "UnrecordableError") and ends(first):
        yield carried(source), first


def answered(status: ast.expr) -> str:
    return ANSWERS.get(status.value if isinstance(status, ast.Constant) else 400, "bad-request")


def slug_of(name: str, call: ast.Call) -> str:
    """Return the slug that a constructor is given, or else that of its class."""
    given = next((constant(keyword.value) for keyword in call.keywords if keyword.arg == "slug"), "")
    return given or (errors()[name].slug if name in errors() else "")


def carried(source: Path) -> str:
    return CARRIED.get(relative(source), "")


def relative(source: Path) -> str:
    return next((f"{n}/{source.relative_to(p)}" for n, p in PACKAGES.items() if source.is_relative_to(p)), source.name)


@cache
def errors() -> Mapping[str, type[OtelMLError]]:
    """Return the exceptions of both packages by name."""
    for source in sources():
        if re.search(r"^class \w+Error\(", source.read_text(encoding="utf-8"), re.MULTILINE):
            importlib.import_module(relative(source).removesuffix(".py").replace("/", "."))
    known = [OtelMLError]
    for found in known:
        known.extend(found.__subclasses__())
    return {found.__name__: found for found in known if found.__module__.startswith("otel_ml")}


def methods_of_errors(tree: ast.AST) -> Mapping[ast.AST, str]:
    """Return the methods of our exceptions with the name of their class."""
    classes = (node for node in statements(tree) if isinstance(node, ast.ClassDef) and node.name in errors())
    return {method: node.name for node in classes for method in node.body}


def problems_slug(nodes: Iterable[ast.AST]) -> str:
    """Return the slug of the `ConfigError(*problems)` of a function; that of the class where there is none."""
    calls = (node for node in nodes if isinstance(node, ast.Call) and name_of(node.func) == "ConfigError")
    collected = (call for call in calls if any(isinstance(argument, ast.Starred) for argument in call.args))
    return next((slug_of("ConfigError", call) for call in collected), errors()["ConfigError"].slug)


def is_problems(expressions: Iterable[ast.expr]) -> bool:
    nodes = (expression.value if isinstance(expression, ast.Attribute) else expression for expression in expressions)
    return any(name_of(node) in {"problems", "wrong", "_problems"} for node in nodes)


def statements(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield what `ast.walk` does, but no expressions: they are nine of ten nodes."""
    found = [owner]
    for node in found:
        yield node
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            found.extend(getattr(node, field, ()))


def targets(node: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def parts(value: ast.expr) -> Iterator[ast.expr]:
    """Yield the elements of a list, of a comprehension, and of lists inside it."""
    if isinstance(value, ast.List):
        for element in value.elts:
            yield from parts(element.value if isinstance(element, ast.Starred) else element)
    elif isinstance(value, ast.ListComp):
        yield value.elt
    elif isinstance(value, ast.IfExp):
        yield from (*parts(value.body), *parts(value.orelse))
    elif isinstance(value, (ast.JoinedStr, ast.Constant, ast.BinOp)):
        yield value


@cache
def makers() -> Mapping[str, ast.expr | list[ast.expr]]:
    """Return what functions that make a sentence return, and what attributes hold one, by name."""
    found: dict[str, ast.expr | list[ast.expr]] = {}
    for source in sources():
        found |= makers_in(ast.parse(source.read_text(encoding="utf-8")))
    return {**found, **{name: found[maker] for name, maker in HOLDS.items()}}


def makers_in(tree: ast.AST) -> Mapping[str, ast.expr | list[ast.expr]]:
    """Return those of one file: a file's own function is meant where others have one of that name."""
    found: dict[str, ast.expr | list[ast.expr]] = {}
    for node in statements(tree):
        if isinstance(node, ast.FunctionDef) and name_of(node.returns) == "str":
            returned = [inner.value for inner in statements(node) if isinstance(inner, ast.Return) and inner.value]
            found[node.name] = returned
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and text_of(node.value):
            found[node.targets[0].attr] = node.value
    return found


def named_in(owner: ast.AST) -> Mapping[str, ast.expr]:
    """Return the texts that are assigned to a name in a function or module."""
    body = owner.body if isinstance(owner, ast.Module) else statements(owner)
    assigned = (node for node in body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
    return {name_of(node.targets[0]): node.value for node in assigned if text_of(node.value)}


def texts(node: ast.expr, known: Mapping[str, ast.expr | list[ast.expr]]) -> Iterator[str]:
    """Yield the sentences that an expression may be."""
    named = name_of(node.func) if isinstance(node, ast.Call) else name_of(node)
    if isinstance(node, ast.IfExp):
        yield from (*texts(node.body, known), *texts(node.orelse, known))
    elif text_of(node):
        yield text_of(node)
    elif named in known:
        meant = known[named]
        yield from (text_of(value) for value in (meant if isinstance(meant, list) else [meant]))


def text_of(node: ast.expr) -> str:
    """Return the text of a string expression, or an empty one where it is not a string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return re.sub("…+", "…", "".join(str(p.value) if isinstance(p, ast.Constant) else "…" for p in node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left) + text_of(node.right)
    return ""


def constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def name_of(node: ast.expr | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_sentence(text: str) -> bool:
    return len(re.findall(r"[a-z]{2,}", text)) >= 2


def ends(sentence: ast.expr) -> bool:
    """Whether it is a whole sentence: what is raised to be quoted inside another has no full stop."""
    return text_of(sentence).endswith(".")


def slugs() -> set[str]:
    """Return every section that a message names, or a reason for which something is counted as lost."""
    named = {message.slug for message in messages()}
    for source in sources():
        text = source.read_text(encoding="utf-8")
        named.update(_REASON.findall(text), re.findall(r'say(?:_first)?\(\s*"([a-z-]+)"', text))
    return {slug.replace("_", "-") for slug in named}


_REASON = re.compile(
    r'(?:dropped(?:\(\w+\))?\[|\bdrop\(\s*|UnrecordableError\(|lost: dict\[str, int\] = \{|NEVER_ARRIVED = )"(\w+)"'
)
"""The line at the end of a run names these: `3 lost (spool_full: 3)`."""


def catalogue() -> str:
    """Return the list of all messages as Markdown, by section, each with an anchor of its own."""
    by_slug: dict[str, set[str]] = defaultdict(set)
    for message in messages():
        by_slug[message.slug].add(message.text)
    return "\n\n".join(f"**[{slug}](#{slug})**\n\n{listed(by_slug[slug])}" for slug in sorted(by_slug))


def listed(sentences: set[str]) -> str:
    return "\n".join(f'- <a id="{anchor(sentence)}"></a>`` {sentence} ``' for sentence in sorted(sentences))


def anchor(sentence: str) -> str:
    """Return a message's anchor: stable as long as the message is the same."""
    return "m-" + hashlib.sha256(sentence.encode()).hexdigest()[:8]

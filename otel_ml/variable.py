"""How a setting is declared, and how its text is parsed (OpenTelemetry's rules: empty is unset)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from otel_ml.redaction import HIDDEN, redacted

__all__ = [
    "Setting",
    "Variable",
    "boolean",
    "choice",
    "comma_separated",
    "integer",
    "size_bytes",
    "size_text",
    "switch",
    "text",
    "token",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """One row of a settings table.

    Attributes:
        name: environment variable.
        parse: text → value; raises `ValueError` whose message says what was expected.
        default: effective value where it is unset.
        doc: one sentence or two, Markdown.
        unit: `ms`, `bytes`, … or an empty string.
        secret: never printed.
        shown_default: how docs print the default, where `repr(default)` would mislead.
    """

    name: str
    parse: Callable[[str], T]
    default: T
    doc: str
    unit: str = ""
    secret: bool = False
    shown_default: str | None = None

    def read(self, environ: Mapping[str, str] | None = None) -> Setting[T]:
        """Return the effective value, where it came from, and what was wrong with the text if anything."""
        raw = (os.environ if environ is None else environ).get(self.name, "")
        if not raw.strip():
            return Setting(self, self.default, "default")
        try:
            return Setting(self, self.parse(raw.strip()), "environment")
        except ValueError as error:
            shown = HIDDEN if self.secret else redacted(repr(raw))
            return Setting(self, self.default, "default", f"{self.name}: expected {error}, got {shown}.")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """An effective value of a `Variable`; `problem` is a whole sentence or None."""

    variable: Variable[T]
    value: T
    source: str
    problem: str | None = None

    @property
    def shown(self) -> str:
        """The value as `otel-ml env` prints it."""
        return HIDDEN if self.variable.secret and self.value else redacted(str(self.value))


def text(raw: str) -> str:
    """Accept any text."""
    return raw


def token(raw: str) -> str:
    """Accept what can stand in a header after `Bearer`."""
    if not raw.isascii() or not raw.isprintable():
        raise ValueError("printable ASCII characters")
    return raw


def boolean(raw: str) -> bool:
    """Accept `true` and `false`, in any case (OpenTelemetry specification, environment variables)."""
    lowered = raw.lower()
    if lowered not in {"true", "false"}:
        raise ValueError("true or false")
    return lowered == "true"


def switch(raw: str) -> bool:
    """Accept `on` and `off`, in any case, and what YAML makes of them.

    Examples:
        >>> switch("on"), switch("OFF"), switch("False")
        (True, False, False)
    """
    lowered = raw.lower()
    if lowered not in {"on", "off", "true", "false"}:
        raise ValueError("on or off")
    return lowered in {"on", "true"}


def comma_separated(raw: str) -> tuple[str, ...]:
    """Accept a comma-separated list; what is empty in it is left out.

    Examples:
        >>> comma_separated("tensorboard, wandb,")
        ('tensorboard', 'wandb')
    """
    return tuple(part.strip() for part in raw.split(",") if part.strip())


def integer(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    """Return a parser of whole numbers from `minimum` to `maximum`."""
    expected = f"a whole number of at least {minimum}"

    def parse(raw: str) -> int:
        try:
            value = int(raw)
        except ValueError:
            raise ValueError(expected) from None
        if value < minimum:
            raise ValueError(expected)
        if value > maximum:
            raise ValueError(f"a whole number of at most {maximum}")
        return value

    return parse


def choice(*options: str) -> Callable[[str], str]:
    """Return a parser of one of `options`, in any case."""

    def parse(raw: str) -> str:
        if raw.lower() not in options:
            raise ValueError(f"one of {', '.join(options)}")
        return raw.lower()

    return parse


_UNITS: Mapping[str, int] = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def size_bytes(raw: str) -> int:
    """Accept bytes, or a number with KiB, MiB, GiB, TiB; none below 0.

    Examples:
        >>> size_bytes("10 GiB")
        10737418240
    """
    # `10 GiB` → `10`; the unit is what was stripped.
    digits = raw.rstrip("BKMGTibkmgt ")
    unit = raw[len(digits) :].strip().lower()
    try:
        size = int(float(digits) * _UNITS[unit])
    except (KeyError, ValueError, OverflowError):
        size = -1
    if size < 0:
        raise ValueError("a size such as 1073741824 or '10 GiB'")
    return size


def size_text(size: int) -> str:
    """Return bytes as a setting has them, exactly: what `size_bytes` takes back.

    Examples:
        >>> size_text(10 * 2**30), size_text(1536), size_text(1000), size_bytes(size_text(10 * 2**30))
        ('10 GiB', '1536 B', '1000 B', 10737418240)
    """
    # The largest unit that leaves no rest, so that `size_bytes` gives back the same number; 0 would fit all of them.
    unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if size and not size % _UNITS[unit.lower()]), "B")
    return f"{size // _UNITS[unit.lower()]} {unit}"


AnyVariable = Variable[Any]

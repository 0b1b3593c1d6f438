"""From names and options to exporters; everything wrong is found before the first run starts."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml.explanation import explained
from otel_ml.redaction import redacted_values
from otel_ml_exporters.errors import UnknownExporterError
from otel_ml_exporters.exporter import Exporter, every_problems
from otel_ml_exporters.registry import check_installed, exporter_class, shown_failure, split_name

__all__ = ["NO_EXPORTER", "LeftOut", "Maker", "exporter_makers"]

Maker = Callable[[], Exporter]

NO_EXPORTER = "none"
"""The name that asks for no exporter at all, as in OpenTelemetry's own variables."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The exporters that were asked for and cannot be used.

    Attributes:
        wrong: name → what is wrong with it.
        unknown: names that nobody registered here.
    """

    wrong: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is wrong."""
        return tuple(problem for found in self.wrong.values() for problem in found)

    def unavailable(self, known: Collection[str] = ()) -> Mapping[str, str]:
        """Return name → its problem, of those that exist: without their package, with a defect, with wrong options.

        Args:
            known: names that exist, registered here or not.
        """
        unreal = self.unknown - set(known)
        return {name: " ".join(found) for name, found in self.wrong.items() if name not in unreal}


def exporter_makers(exporters: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, Maker], LeftOut]:
    """Return name → what builds the exporter, and those that are left out.

    Args:
        exporters: name → options of its constructor. `none`, alone, asks for no exporter.
    """
    if set(exporters) == {NO_EXPORTER}:
        return {}, LeftOut()
    makers: dict[str, Maker] = {}
    problems: dict[str, tuple[str, ...]] = {}
    unknown: set[str] = set()
    places: dict[tuple[str, str], str] = {}
    for name, options in exporters.items():
        try:
            makers[name] = _maker(name, options, places)
        except ConfigError as error:
            problems[name] = tuple(explained(problem, error.slug) for problem in error.problems)
            if isinstance(error, UnknownExporterError):
                unknown.add(name)
        except (MissingDependencyError, TypeError) as error:
            problems[name] = (str(error),)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (code of others, which is imported and called here for the first time)
            sentence = f"exporters.{name}: {shown_failure(error)}. Leave it out, or update its package."
            problems[name] = (explained(sentence, "exporter-broken"),)
    return makers, LeftOut(problems, frozenset(unknown))


def _maker(name: str, options: Mapping[str, Any], places: dict[tuple[str, str], str]) -> Maker:
    """Return what builds an exporter, after it was built once: constructors check values, and open nothing."""
    if name == NO_EXPORTER:
        raise ConfigError(
            f"exporters: {NO_EXPORTER!r} means no exporter at all, and others are named beside it. Leave it out.",
            slug="unknown-exporter",
        )
    found = exporter_class(name)
    check_installed(name)
    _check_names(name, found, options)
    make = _making(name, found, options)
    _check_place(name, _made(name, make, options).place, places)
    return make


def _made(name: str, make: Maker, options: Mapping[str, Any]) -> Exporter:
    try:
        return make()
    except TypeError as error:  # it uses an option without a look at what that is
        given = ", ".join(f"{option}={value!r}" for option, value in redacted_values(options).items())
        raise ConfigError(f"exporters.{name}: its options are not what it takes ({given}): {error}.") from error


def _making(name: str, found: type[Exporter], options: Mapping[str, Any]) -> Maker:
    """Return a maker that thins by `every` also where the exporter's own constructor does not know that option."""
    if "every" not in options or _takes(found, "every"):
        return partial(found, **options)
    every = options["every"]
    if problems := every_problems(name, every):
        raise ConfigError(*problems)
    return partial(_thinning, found, {key: value for key, value in options.items() if key != "every"}, every)


def _thinning(found: type[Exporter], options: Mapping[str, Any], every: int) -> Exporter:
    exporter = found(**options)
    exporter.every = every
    return exporter


def _takes(found: type[Exporter], option: str) -> bool:
    parameters = inspect.signature(found).parameters
    return option in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def _check_place(name: str, place: str | None, taken: dict[tuple[str, str], str]) -> None:
    kind, instance = split_name(name)
    if name != kind and not instance:
        raise ConfigError(
            f"exporters.{name}: the name of the instance is missing. Write {kind!r}, or {kind + '/b'!r} for another.",
            slug="exporter-place",
        )
    if place is None:
        return
    first = taken.setdefault((kind, place), name)
    if first != name:
        raise ConfigError(
            f"exporters.{name}: writes to the same place as exporters.{first}: all values would be there twice. "
            "Give it options that lead elsewhere, or leave one of them out.",
            slug="exporter-place",
        )


def _check_names(name: str, found: type[Exporter], options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(found).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    # Every exporter has `every`: where its constructor does not take it, `_making` does.
    names = [*parameters, *({"every"} - parameters.keys())]
    unknown = sorted(set(options) - set(names))
    if unknown:
        hints = [difflib.get_close_matches(option, names, n=1) for option in unknown]
        near = "".join(f" Did you mean {hint[0]!r}?" for hint in hints if hint)
        known = ", ".join(names)
        raise ConfigError(
            f"exporters.{name}: {', '.join(unknown)} is not an option.{near} Known: {known}.", slug="exporter-option"
        )

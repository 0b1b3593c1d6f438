"""From names and options to exporters; everything wrong is found before the first run starts."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml.explanation import explained
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.registry import check_installed, exporter_class, shown_failure, split_name

__all__ = ["exporter_makers"]


def exporter_makers(
    exporters: Mapping[str, Mapping[str, Any]],
) -> tuple[Mapping[str, Callable[[], Exporter]], list[str]]:
    """Return name → what builds the exporter, and what is wrong with those that are left out."""
    makers: dict[str, Callable[[], Exporter]] = {}
    problems: list[str] = []
    places: dict[tuple[str, str], str] = {}
    for name, options in exporters.items():
        try:
            found = exporter_class(name)
            check_installed(name)
            _check_names(name, found, options)
            place = found(**options).place  # the constructor checks values; it opens nothing
            _check_place(name, place, places)
        except ConfigError as error:
            problems += [explained(problem, error.slug) for problem in error.problems]
        except (MissingDependencyError, TypeError) as error:
            problems.append(str(error))
        except Exception as error:  # noqa: BLE001 (code of others, which is imported and called here for the first time)
            problems.append(
                explained(
                    f"exporters.{name}: {shown_failure(error)}. Leave it out, or update its package.", "exporter-broken"
                )
            )
        else:
            makers[name] = partial(found, **options)
    return makers, problems


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
    unknown = sorted(set(options) - set(parameters))
    if unknown:
        hints = [difflib.get_close_matches(option, parameters, n=1) for option in unknown]
        near = "".join(f" Did you mean {hint[0]!r}?" for hint in hints if hint)
        known = ", ".join(parameters) or "none"
        raise ConfigError(
            f"exporters.{name}: {', '.join(unknown)} is no option.{near} Known: {known}.", slug="exporter-option"
        )

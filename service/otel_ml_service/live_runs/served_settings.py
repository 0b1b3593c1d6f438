"""With what a run was served, kept in its folder: whoever goes on with it later writes to the same places."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from otel_ml.redaction import HIDDEN, is_secret_name, redacted, redacted_values
from otel_ml.wire.versions import own_version, require
from otel_ml_exporters.registry import BUILT_IN, split_name
from otel_ml_service.config_file import REFERENCE, read_config_file, resolved_options
from otel_ml_service.versions import SERVED

__all__ = ["ServedSettings", "served_as"]

_FILE = "served.json"

_OWN = "OTEL_ML_"

_SCHEME = re.compile(r"\s*(?:(?:bearer|basic|token)\s*)?", re.IGNORECASE)
"""What may stand before a secret in a header."""


@dataclass(frozen=True, slots=True)
class ServedSettings:
    """The content of `state/served.json`. No secret is in it.

    Attributes:
        exporters: name → options as they were written: a reference to a variable is one still, a secret is hidden.
        environ: variables that its exporters read.
        asked: names of those whose value held a secret, and which therefore have to be set again.
        folder: where the service was started: relative paths in options and variables begin there.
        file: `otel-ml.yaml`, or "".
        is_of_serve: by a service of many runs.
    """

    exporters: Mapping[str, Mapping[str, Any]]
    environ: Mapping[str, str]
    asked: tuple[str, ...]
    folder: str
    file: str
    is_of_serve: bool

    @staticmethod
    def read(state: Path) -> ServedSettings | None:
        """Return what is kept in a run's folder `state`; None where nothing is, or nothing that can be read.

        Raises:
            VersionError: a newer otel_ml has written it, and this one cannot follow.
        """
        try:
            found = json.loads((state / _FILE).read_text(encoding="utf-8"))
            # The version first: of a newer form the other keys may mean something else.
            require(state / _FILE, int(found.get("version", 1)), SERVED, str(found.get("writer", "")))
            return ServedSettings(
                exporters={str(name): dict(options) for name, options in found["exporters"].items()},
                environ={str(name): str(value) for name, value in found["environ"].items()},
                asked=tuple(map(str, found["asked"])),
                folder=str(found["folder"]),
                file=str(found["file"]),
                is_of_serve=bool(found["is_of_serve"]),
            )
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError):
            return None

    def keep(self, state: Path) -> None:
        """Write it to a run's folder `state`. A disk that takes no more is no reason not to serve the run."""
        with suppress(OSError):
            fresh = state / f"{_FILE}.new"
            content = {"version": SERVED, "writer": own_version(), **asdict(self)}
            fresh.write_text(json.dumps(content, indent=1, default=str), encoding="utf-8")
            fresh.replace(state / _FILE)

    def options(self, environ: Mapping[str, str], problems: list[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return the exporters and their options, with the values of variables and what was hidden.

        Args:
            environ: where variables are looked up.
            problems: what cannot be had is added here.
        """
        # What is wrong with the file today does not matter here: only what was hidden is taken from it.
        said = read_config_file(Path(self.file), environ, []).written if self.file else {}
        hidden: list[str] = []
        whole = {
            name: _filled(options, said.get(name), f"exporters.{name}", hidden)
            for name, options in self.exporters.items()
        }
        problems += [
            f"{where} was a secret, which is kept nowhere, and {self.file!r} does not have it now. Write it there "
            "again; a reference to a variable, ${env:NAME}, is kept."
            for where in hidden
        ]
        unset: list[str] = []
        found = resolved_options(whole, environ, unset)
        problems += [f"{problem} Set it as it was for the run's service." for problem in unset]
        return found

    def missing(self, environ: Mapping[str, str]) -> list[str]:
        """Return a sentence for each variable that has to be set again and is not."""
        return [
            f"The variable {name} is not set, and was when the run was recorded; it held a secret, which is kept "
            "nowhere. Set it as it was for the run's service."
            for name in self.asked
            if name not in environ
        ]


def served_as(
    exporters: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str], file: Path | None, *, is_of_serve: bool
) -> ServedSettings:
    """Return what is to be kept of a service that is started now.

    Args:
        exporters: name → options as they were written.
        environ: of the service.
        file: its `otel-ml.yaml`, or None.
        is_of_serve: it has many runs. What it was told by variables of otel_ml, such as its address, is its own.
    """
    kinds = {split_name(name)[0] for name in exporters}
    # Which variables a plug-in reads is not known here.
    prefixes = tuple(prefix for kind in kinds & BUILT_IN.keys() for prefix in BUILT_IN[kind].variables)
    # Sorted, so that the file of two services that were started alike is the same.
    open_values = {name: value for name, value in sorted(environ.items()) if not is_secret_name(name)}
    of_exporters = {name: value for name, value in open_values.items() if name.startswith(prefixes)}
    own = {} if is_of_serve else {name: value for name, value in open_values.items() if name.startswith(_OWN)}
    asked = tuple(name for name, value in of_exporters.items() if _holds_secret(name, value))
    return ServedSettings(
        exporters={name: _without_secrets(options) for name, options in exporters.items()},
        environ={name: value for name, value in {**own, **of_exporters}.items() if not _holds_secret(name, value)},
        asked=asked,
        folder=_current_folder(),
        file="" if file is None else str(file.absolute()),
        is_of_serve=is_of_serve,
    )


def _holds_secret(name: str, value: str) -> bool:
    """Whether a variable does. Headers say who one is: whatever they look like."""
    return name.endswith("_HEADERS") or redacted(value) != value


def _current_folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""  # it was removed


def _without_secrets(value: Any, name: str = "") -> Any:
    """Return options with `HIDDEN` in the place of each text that may be, or hold, a secret."""
    if isinstance(value, Mapping):
        # Whatever is below `headers` may say who one is, under any key.
        return {
            str(key): _without_secrets(item, name if name == "headers" else str(key)) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item, name) for item in value]
    if isinstance(value, bytes):
        return HIDDEN
    if not isinstance(value, str):
        return value
    # A reference, also one after `Bearer`, may be kept: the secret is in the variable. The rest of a text may be one.
    rest, references = REFERENCE.subn("", value)
    if references and _SCHEME.fullmatch(rest):
        return value
    return HIDDEN if name == "headers" or redacted_values(rest, name) != rest else value


def _filled(kept: Any, said: Any, where: str, hidden: list[str]) -> Any:
    """Return options with what was hidden taken from `said`; places where that has nothing are added to `hidden`."""
    if isinstance(kept, Mapping):
        has = said if isinstance(said, Mapping) else {}
        return {key: _filled(value, has.get(key), f"{where}.{key}", hidden) for key, value in kept.items()}
    if isinstance(kept, list):
        # In a list of another length nobody can say which item is which.
        items = said if isinstance(said, list) and len(said) == len(kept) else [None] * len(kept)
        return [_filled(value, item, where, hidden) for value, item in zip(kept, items, strict=True)]
    if kept != HIDDEN:
        return kept
    if said is None:
        hidden.append(where)
    return said

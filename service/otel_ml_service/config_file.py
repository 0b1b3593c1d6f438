"""`otel-ml.yaml`: exporters and their options, addresses, limits; `${env:NAME}` takes a variable's value."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["REFERENCE", "FileSettings", "read_config_file", "resolved_options"]

REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
"""What stands for the value of a variable."""

_LIMITS = ("dir_max", "queue_max", "open_max", "retained_max", "closed_max", "late_max", "series_max")
_TIMES = ("allowed_lateness", "end_silence", "closed_hours")
_VALUES = ("dir", "journal_dir", *_LIMITS, *_TIMES, "top_ranks", "findings", "self_telemetry", "token", "token_file")
_TOP = ("exporters", *_VALUES, "tokens", "listen", "scraped", "aliases")
_LISTEN = ("http", "grpc", "tls")
_SCRAPED = ("allow", "deny", "max_series")
_TLS = ("certificate", "key", "client_ca")


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What a file says, as text where a variable of the same meaning has text; None where it says nothing.

    Attributes:
        written: options of the exporters as they stand there, with references to variables.
        file: its path, as messages name it.
    """

    exporters: Mapping[str, Mapping[str, Any]] | None = None
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    tls: Mapping[str, str] = field(default_factory=dict)
    scraped: Mapping[str, Any] = field(default_factory=dict)
    aliases: Mapping[str, Any] = field(default_factory=dict)
    tokens: Sequence[str] = ()
    file: str = ""

    def place_of(self, key: str) -> str:
        """Return the file and the place in it where the value of a key stands."""
        return f"{self.file}: listen.{key}" if key in _LISTEN else f"{self.file}: {key}"


def read_config_file(path: Path, environ: Mapping[str, str], problems: list[str]) -> FileSettings:
    """Return the settings in `path`; everything wrong with it is added to `problems`."""
    import yaml  # most services have no file

    try:
        text = path.read_text(encoding="utf-8")
        content, nodes = yaml.safe_load(text), yaml.compose(text, yaml.SafeLoader)
        json.dumps(content, default=str, skipkeys=True)  # raises where something is a part of itself
    except OSError as error:
        problems.append(f"Cannot read {str(path)!r}: {error.strerror}.")
        return FileSettings()
    # A date that there is not is a ValueError; what is too deep, a RecursionError.
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Where and why, not what stands there: that may be the token.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        problems.append(f"{str(path)!r} is not YAML{where}: {getattr(error, 'problem', None) or 'it cannot be read'}.")
        return FileSettings()
    reader = _Reader(str(path), environ, problems)
    top = reader.mapping(content, "", _TOP)
    listen = reader.mapping(top.get("listen"), "listen", _LISTEN)
    tls = reader.mapping(listen.get("tls"), "listen.tls", _TLS)
    reader.check_single(top, "token", "tokens")
    reader.check_quotes(content, nodes, ("token", "tokens"))
    # Without `tls`, which has keys of its own.
    values = {**{key: top.get(key) for key in _VALUES}, **{key: listen.get(key) for key in _LISTEN[:2]}}
    return FileSettings(
        file=str(path),
        # A key with nothing below it asks for no exporter; without the key the default counts.
        exporters=reader.exporters(top["exporters"]) if "exporters" in top else None,
        written=_written(content),
        values={key: str(value) for key, value in values.items() if value is not None},
        tls={key: str(value) for key, value in tls.items() if value is not None},
        scraped=reader.mapping(top.get("scraped"), "scraped", _SCRAPED),
        aliases=reader.mapping(top.get("aliases"), "aliases", None),
        tokens=reader.texts(top.get("tokens"), "tokens"),
    )


def resolved_options(
    written: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str], problems: list[str]
) -> Mapping[str, Mapping[str, Any]]:
    """Return the options of exporters with the values of variables; those that are not set are added to `problems`."""
    return _Reader("", environ, problems).exporters(written)


def _written(content: object) -> Mapping[str, Mapping[str, Any]]:
    said = content.get("exporters") if isinstance(content, dict) else None
    named = said if isinstance(said, dict) else {}
    return {str(name): options for name, options in named.items() if isinstance(options, dict)}


def _is_read_otherwise(written: Any, read: object) -> bool:
    """Whether a text, or one of a list, is read as another one than stands there, such as 0123 as 83."""
    if isinstance(read, list):
        return any(map(_is_read_otherwise, written.value, read))
    return read is not None and isinstance(written.value, str) and str(read) != written.value


class _Reader:
    def __init__(self, path: str, environ: Mapping[str, str], problems: list[str]) -> None:
        self._path = path
        self._environ = environ
        self._problems = problems

    def mapping(self, content: object, where: str, known: Iterable[str] | None) -> dict[str, Any]:
        """Return `content` with references resolved; unknown keys are problems."""
        if content is None:
            return {}
        if not isinstance(content, dict):
            # Not what stands there: that may be a secret, too.
            got = "a list" if isinstance(content, list) else "a text" if isinstance(content, str) else "one value"
            self._problem(where, f"expected keys and values, got {got}.")
            return {}
        found = {str(key): self._resolved(value, f"{where}.{key}".lstrip(".")) for key, value in content.items()}
        if known is None:
            return found
        for key in sorted(set(found) - set(known)):
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            self._problem(f"{where}.{key}".lstrip("."), f"is not a setting.{hint} Known: {', '.join(known)}.")
        return found

    def texts(self, content: object, where: str) -> list[str]:
        """Return a list of texts."""
        if content is None:
            return []
        if not isinstance(content, list) or any(isinstance(item, (list, dict, type(None))) for item in content):
            self._problem(where, "expected a list of texts.")  # not what stands there: that may be a secret
            return []
        return [str(item) for item in content]

    def check_single(self, top: Mapping[str, Any], key: str, several: str) -> None:
        """Have `key` be one text, and `several` the place of a list."""
        if isinstance(top.get(key), (list, dict)):
            self._problem(key, f"expected one text. For several use {several}: [NEW, OLD].")

    def check_quotes(self, content: object, nodes: Any, keys: Iterable[str]) -> None:
        """Have texts be read as they stand there, which YAML does not where it takes them for a number or a date."""
        if not isinstance(content, dict):
            return
        written = {key.value: value for key, value in nodes.value}
        for key in set(keys) & written.keys() & content.keys():
            if _is_read_otherwise(written[key], content[key]):
                self._problem(key, "expected a token in quotes: without them YAML reads another text than that.")

    def exporters(self, content: object) -> Mapping[str, Mapping[str, Any]]:
        """Return name → options, from a mapping or a list of names."""
        if isinstance(content, list):
            content = dict.fromkeys(map(str, content))
        named = self.mapping(content, "exporters", None)
        return {name: self.mapping(options, f"exporters.{name}", None) for name, options in named.items()}

    def _resolved(self, value: Any, where: str) -> Any:
        if isinstance(value, dict):
            return {key: self._resolved(item, f"{where}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self._resolved(item, where) for item in value]
        if not isinstance(value, str):
            return value
        for name in REFERENCE.findall(value):
            if name not in self._environ:
                self._problem(where, f"the variable {name} is not set.")
        return REFERENCE.sub(lambda match: self._environ.get(match[1], ""), value)

    def _problem(self, where: str, text: str) -> None:
        self._problems.append(": ".join(part for part in (self._path, where, text) if part))

"""Errors a user of otel_ml can catch.

::

    OtelMLError
    ├── ConfigError                 an argument or variable is wrong (also a ValueError)
    ├── MissingDependencyError      an optional package is not installed (also an ImportError)
    ├── VersionError                something was stored by an otel_ml that this one cannot follow
    └── WireError                   bytes that cannot be otel_ml telemetry (also a ValueError)

Nothing here is raised by a recording call: after `otel_ml.init()` the worker counts and
says once, unless `OTEL_ML_STRICT=true`.
"""

from __future__ import annotations

from collections.abc import Sequence

from otel_ml.explanation import explained, is_explained

__all__ = ["ConfigError", "MissingDependencyError", "OtelMLError", "VersionError", "WireError"]


class OtelMLError(Exception):
    """Base of every error otel_ml raises.

    Args:
        arguments: the message, a whole sentence.
        slug: instead of the class's.

    Attributes:
        slug: what `otel-ml explain` takes to say more; the text of the error ends with that command.
    """

    slug: str = ""

    def __init__(self, *arguments: object, slug: str = "") -> None:
        super().__init__(*arguments)
        if slug:
            self.slug = slug

    @property
    def sentence(self) -> str:
        """The message without the command, to be quoted in another."""
        return super().__str__()

    def __str__(self) -> str:
        return explained(self.sentence, self.slug)


class ConfigError(OtelMLError, ValueError):
    """One or more arguments or variables are wrong; the message lists all of them.

    Examples:
        >>> print(ConfigError("OTEL_ML_MODE: expected 'auto', got 'autoo'.", "OTEL_ML_RANK: expected an int, got 'x'."))
        2 settings are wrong (otel-ml explain wrong-setting):
          OTEL_ML_MODE: expected 'auto', got 'autoo'.
          OTEL_ML_RANK: expected an int, got 'x'.
    """

    slug = "wrong-setting"

    def __init__(self, *problems: str, slug: str = "") -> None:
        self.problems: Sequence[str] = problems
        if len(problems) == 1:
            super().__init__(problems[0], slug=slug)
            return
        title = f"{len(problems)} settings are wrong"
        # Each of them may name its own section already; then the title needs none.
        if not all(map(is_explained, problems)):
            title = explained(title, slug or self.slug)
        super().__init__("\n  ".join([f"{title}:", *problems]), slug=slug)


class MissingDependencyError(OtelMLError, ModuleNotFoundError):
    """An optional package is needed and not installed.

    Examples:
        >>> print(MissingDependencyError("Exporter 'mlflow'", package="mlflow", extra="mlflow").sentence)
        Exporter 'mlflow' needs the package 'mlflow'. Install it with: pip install 'otel-ml[mlflow]'
    """

    slug = "missing-package"

    def __init__(self, what: str, *, package: str, extra: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{what} needs the package {package!r}. Install it with: pip install 'otel-ml[{extra}]'")


class VersionError(OtelMLError):
    """Another version of otel_ml has stored something in a form that this one does not read; it is left as it is."""

    slug = "other-version"


class WireError(OtelMLError, ValueError):
    """Bytes or attributes that are not otel_ml telemetry."""

    slug = "damaged-data"

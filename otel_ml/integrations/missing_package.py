"""A framework that an integration needs and that is not installed, or too old; the message says how to install it."""

from __future__ import annotations

import shlex

from otel_ml.exceptions import OtelMLError

__all__ = ["PackageError"]


class PackageError(OtelMLError, ImportError):
    """A framework is not installed, or not in the version that is needed.

    Examples:
        >>> print(PackageError("OtelMLTracker", "accelerate>=1.8").sentence)
        OtelMLTracker needs the package 'accelerate>=1.8'. Install it with: pip install 'accelerate>=1.8'
    """

    slug = "missing-package"

    def __init__(self, what: str, package: str) -> None:
        self.package = package
        super().__init__(f"{what} needs the package {package!r}. Install it with: pip install {shlex.quote(package)}")

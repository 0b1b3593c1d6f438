"""A framework that an integration needs and that is not installed; the message says how to install it."""

from __future__ import annotations

from otel_ml.exceptions import OtelMLError

__all__ = ["PackageError"]


class PackageError(OtelMLError, ImportError):
    """A framework is not installed.

    Examples:
        >>> print(PackageError("OtelMLTracker", "accelerate").sentence)
        OtelMLTracker needs the package 'accelerate'. Install it with: pip install accelerate
    """

    slug = "missing-package"

    def __init__(self, what: str, package: str) -> None:
        self.package = package
        super().__init__(f"{what} needs the package {package!r}. Install it with: pip install {package}")

"""Which optional packages there are, and which versions are installed; none of them is imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from otel_ml_exporters.registry import BUILT_IN

__all__ = ["OPTIONAL_PACKAGES", "installed_version"]

OPTIONAL_PACKAGES: Mapping[str, str] = {
    "tensorboard": "tensorboard",
    **{backend.package: name for name, backend in BUILT_IN.items() if backend.package is not None},
    "grpcio": "grpc",
    "crc32c": "tensorboard",
    "scikit-learn": "demo",
    "torch": "torch",
    "mcp": "mcp",
}
"""Package → the extra of otel-ml that brings it."""


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None

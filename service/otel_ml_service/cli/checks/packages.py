"""Are the packages there, in versions that work?"""

from __future__ import annotations

import platform
from collections.abc import Iterator

from otel_ml._internal.native import native
from otel_ml_service.cli.checks.check import Check
from otel_ml_service.cli.packages import OPTIONAL_PACKAGES, installed_version

__all__ = ["package_checks"]

_BROKEN = {
    ("mlflow", "3.18.0"): "its parts mlflow-skinny and mlflow-tracing were never published",
}
"""Releases that cannot work; keep in step with the exclusions in `pyproject.toml`."""

_LEAKING = {"1.45.0", "1.45.1"}
"""opentelemetry-sdk before 1.45.2 keeps the state of every attribute set for ever, also with delta temporality."""


def package_checks() -> Iterator[Check]:
    """Yield what is installed, what is not, and what cannot work."""
    ours = installed_version("otel-ml") or "(not installed: running from its sources)"
    yield Check("ok", f"otel-ml {ours}, Python {platform.python_version()}")
    yield _compiled_part()
    sdk = installed_version("opentelemetry-sdk")
    if sdk in _LEAKING:
        yield Check(
            "note",
            f"opentelemetry-sdk {sdk} keeps the state of every attribute set of your own OTel instruments for ever",
            "pip install -U 'opentelemetry-sdk>=1.45.2' (what otel_ml records is not affected)",
        )
    else:
        yield Check("ok", f"opentelemetry-sdk {sdk}")
    for package, extra in OPTIONAL_PACKAGES.items():
        version = installed_version(package)
        if version is None:
            yield Check("note", f"{package} is not installed", f"pip install 'otel-ml[{extra}]'")
        elif (package, version) in _BROKEN:
            yield Check(
                "wrong",
                f"{package} {version} does not work: {_BROKEN[package, version]}",
                f"pip install '{package}!={version}'",
            )
        else:
            yield Check("ok", f"{package} {version}")


def _compiled_part() -> Check:
    if native is not None:
        return Check("ok", "otel_ml's compiled part is there")
    return Check(
        "note",
        "otel_ml has no compiled part: it records the same without, and recording takes longer",
        "pip install --force-reinstall --no-deps --no-binary otel-ml otel-ml (needs a C compiler and Python's headers)",
    )

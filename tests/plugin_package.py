"""A package of somebody else with exporters, as pip installs it, for processes that have its folder on their path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["install"]


def install(folder: Path, modules: Mapping[str, str], exporters: str) -> Path:
    """Install the package `acme`; return its folder.

    Args:
        folder: in which it is installed; made where it is not there.
        modules: name → source.
        exporters: the lines of their entry points.
    """
    described = folder / "acme-1.0.dist-info"
    described.mkdir(parents=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[otel_ml.exporters]\n{exporters}\n")
    return folder

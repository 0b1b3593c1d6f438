"""Where the product is, and copies of it to make mistakes in: the tree itself is never written to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["KEPT", "PACKAGES", "ROOT", "copied", "group_of", "sources"]

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "mutants"
PACKAGES = {
    "otel_ml": ROOT / "otel_ml",
    "otel_ml_exporters": ROOT / "exporters" / "otel_ml_exporters",
    "otel_ml_service": ROOT / "service" / "otel_ml_service",
}


def sources() -> list[str]:
    """Return the modules of the product, from the root of the repository."""
    return sorted(str(file.relative_to(ROOT)) for root in PACKAGES.values() for file in root.rglob("*.py"))


def group_of(file: str) -> str:
    """Return what a module counts for: `aggregation`, `wire`, `_internal`; `otel_ml` for one beside the packages."""
    package = next(root for root in PACKAGES.values() if (ROOT / file).is_relative_to(root))
    parts = (ROOT / file).relative_to(package).parts
    return parts[0] if len(parts) > 1 else package.name


def copied(name: str) -> Path:
    """Return a copy of everything the tests use, as new as the tree: tracked files, new ones, and what is compiled."""
    copy = KEPT / "copies" / name
    shutil.rmtree(copy, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    compiled = [str(path.relative_to(ROOT)) for path in PACKAGES["otel_ml"].rglob("*.so")]
    for file in filter(None, [*listed, *compiled]):
        if (ROOT / file).is_file():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, copy / file)
    return copy

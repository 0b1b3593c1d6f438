"""What is collected: doctests only where there are some."""

from __future__ import annotations

from pathlib import Path

PROMPT = b">>>"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave modules without a doctest alone: to look for one, pytest would import each of them, and torch with it."""
    is_module = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_module and PROMPT not in collection_path.read_bytes() else None

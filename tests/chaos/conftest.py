"""What pytest must not import."""

from __future__ import annotations

collect_ignore = ["rank.py"]
"""A program: it changes the clock of the process that imports it."""

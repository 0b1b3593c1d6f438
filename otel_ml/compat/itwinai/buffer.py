"""Metrics on their way to CSV files: some are kept in memory, and written by a thread of their own."""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otel_ml.warn_once import reporter

__all__ = ["Buffer", "Noted", "Summary", "not_written"]


@dataclass(frozen=True)
class Noted:
    """One value of a metric."""

    context: str
    name: str
    step: int | None
    value: Any
    time: float = field(default_factory=time.time)


@dataclass
class Summary:
    """What a document says of a metric; its values are in the file."""

    context: str
    name: str
    path: Path
    count: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last: float | None = None
    min: float | None = None
    max: float | None = None

    def add(self, step: int | None, value: float) -> None:
        """Take in one value."""
        self.count += 1
        self.last = value
        self.min = value if self.min is None else min(self.min, value)
        self.max = value if self.max is None else max(self.max, value)
        if step is not None:
            self.first_step = step if self.first_step is None else self.first_step
            self.last_step = step


class Buffer:
    """Keeps up to `size` values in memory; then a thread writes them to `<folder>/metrics/<context>/<name>.csv`.

    Numbers on a device are read by that thread.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._size = size
        self._kept: list[Noted] = []
        self._summaries: dict[tuple[str, str], Summary] = {}
        self._writer: ThreadPoolExecutor | None = None

    def note(self, noted: Noted) -> None:
        """Keep a value."""
        value = noted.value
        if hasattr(value, "detach"):
            # What is logged may be changed in place right after.
            value = value.detach().clone()
        self._kept.append(Noted(noted.context, noted.name, noted.step, value, noted.time))
        if len(self._kept) >= self._size:
            self._write_kept()

    def close(self) -> Sequence[Summary]:
        """Write the rest, and return what is in the files."""
        self._write_kept()
        if self._writer is not None:
            self._writer.shutdown(wait=True)
        return list(self._summaries.values())

    @property
    def paths(self) -> list[Path]:
        """The files."""
        return [summary.path for summary in self._summaries.values()]

    def _write_kept(self) -> None:
        # The list changes hands: the writing thread is the only one that has the old one.
        kept, self._kept = self._kept, []
        if kept:
            if self._writer is None:
                # One thread, so that the lines of a file stay in the order in which they were logged. Summaries belong
                # to it, too, until `close()` has waited for it.
                self._writer = ThreadPoolExecutor(1, thread_name_prefix="otel-ml-provenance")
            self._writer.submit(self._write, kept)

    def _write(self, kept: Sequence[Noted]) -> None:
        rows: dict[tuple[str, str], list[tuple[object, ...]]] = defaultdict(list)
        for noted in kept:
            try:
                value = float(noted.value)
            except Exception:  # noqa: BLE001 (no number, or several: otel_ml counts it, and says so; the others are kept)
                continue
            key = (noted.context, noted.name)
            self._summary(key).add(noted.step, value)
            rows[key].append((noted.context, "" if noted.step is None else noted.step, noted.time, value))
        try:
            for key, lines in rows.items():
                _append(self._summary(key).path, lines)
        except OSError as error:
            reporter.say("itwinai-provenance", not_written(self._folder, error))

    def _summary(self, key: tuple[str, str]) -> Summary:
        found = self._summaries.get(key)
        if found is None:
            context, name = key
            path = self._folder / "metrics" / _file_name(context) / f"{_file_name(name)}.csv"
            found = self._summaries[key] = Summary(context, name, path)
        return found


def not_written(folder: Path, error: OSError) -> str:
    """Say that a folder cannot be written."""
    return (
        f"Prov4MLLogger: {str(folder)!r} cannot be written: {error}. Expected a folder with room; training goes on, "
        "and the run has all values."
    )


def _file_name(name: str) -> str:
    from otel_ml.wire.safe_names import unique_path

    return unique_path(name).replace("/", "~")


def _append(path: Path, lines: Sequence[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(("context", "step", "time", "value"))
        writer.writerows(lines)

"""tensorboardX's writer of the whole program: each function that records gets it without being given it."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tensorboard.run_writer import FileWriter
from otel_ml.compat.tensorboard.summary_writer import SummaryWriter

__all__ = ["GlobalSummaryWriter"]

_WRITERS: list[GlobalSummaryWriter] = []
"""The one that `getSummaryWriter()` has made."""


class GlobalSummaryWriter:
    """Records without steps: each tag counts its own calls, of each process by itself."""

    def __init__(
        self,
        logdir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
        write_to_disk: bool = True,
        log_dir: Any = None,
        coalesce_process: bool = True,
        **more: Any,
    ) -> None:
        del coalesce_process  # each process of a job records into the one run anyway
        folder = log_dir if logdir is None else logdir
        self.smw: SummaryWriter = SummaryWriter(
            folder, comment, purge_step, max_queue, flush_secs, filename_suffix, write_to_disk, **more
        )

    def add_scalar(self, tag: str, scalar_value: Any, walltime: float | None = None) -> None:
        """Record a value."""
        self.smw.add_scalar(tag, scalar_value, None, walltime)

    def add_image(self, tag: str, img_tensor: Any, walltime: float | None = None, dataformats: str = "CHW") -> None:
        """Record a picture; `dataformats` names its dimensions."""
        self.smw.add_image(tag, img_tensor, None, walltime, dataformats)

    def add_text(self, tag: str, text_string: str, walltime: float | None = None) -> None:
        """Record a text, Markdown where it is rendered."""
        self.smw.add_text(tag, text_string, None, walltime)

    @staticmethod
    def getSummaryWriter() -> GlobalSummaryWriter:  # noqa: N802 (tensorboardX's name)
        """Return the writer of the program; the first call makes it."""
        if not _WRITERS:
            _WRITERS.append(GlobalSummaryWriter())
        print("Using the global logger in:", _WRITERS[0].smw.log_dir)  # noqa: T201 (as tensorboardX does)
        return _WRITERS[0]

    @property
    def file_writer(self) -> FileWriter | None:
        """That of the writer, see `SummaryWriter`."""
        return self.smw._get_file_writer()  # noqa: SLF001 (one package)

    def close(self) -> None:
        """Close the writer; the last one ends the run."""
        self.smw.close()

"""What the exporter must remember beside the event files, in `otel_ml.json`: parameters, metrics, bands, the end."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from otel_ml.wire.versions import require

__all__ = ["ExporterState"]


_FORM = 1
"""Of the file; another one is to be written to it as `form`."""


@dataclass(frozen=True)
class ExporterState:
    """Merged over the run's life; the same again changes nothing, so a replay is harmless.

    Attributes:
        version: number of the last file of hparams.
        params: flat parameters.
        metrics: names of the summary.
        bands: names with a chart in the custom layout.
        end: status and time, or None while the run goes on.
    """

    version: int = 0
    params: dict[str, bool | float | str] = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)
    bands: list[str] = field(default_factory=list)
    end: tuple[str, float] | None = None

    @classmethod
    def load(cls, path: Path) -> ExporterState:
        """Return what was saved, or empty notes.

        Raises:
            VersionError: a newer otel_ml has saved it.
            ValueError: it is damaged, as a power cut leaves it.
        """
        # A run without parameters, summary and end has no such file, and nothing is damaged.
        if not path.exists():
            return cls()
        saved = json.loads(path.read_text(encoding="utf-8"))
        try:
            require(path, saved.pop("form", _FORM), _FORM)
            saved["end"] = tuple(saved["end"]) if saved["end"] else None
            return cls(**saved)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"{path} holds something else: {error}") from error

    def save(self, path: Path) -> None:
        """Replace the file as a whole: a crash leaves the old or the new one."""
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")
        temporary.replace(path)

"""One call of `log()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otel_ml.compat.itwinai.files import Files
from otel_ml.compat.itwinai.measure import Energy
from otel_ml.compat.itwinai.session import Joined

__all__ = ["Entry"]


@dataclass(frozen=True)
class Entry:
    """What was logged, and where it goes.

    Attributes:
        seconds: since the context was created.
        energy: used since then.
        rank: of this worker.
        has_several: whether other workers record too: then numbers are shown for each of them as well.
        options: what else `log()` was given.
        loggers: the names of the loggers that let it pass.
    """

    item: Any
    identifier: str
    kind: str
    step: int | None
    options: Mapping[str, Any]
    joined: Joined
    files: Files
    seconds: float
    energy: Energy
    rank: int
    has_several: bool
    loggers: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name it is recorded under."""
        return self.joined.named(self.identifier)

    def named_values(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield the number under `name`, or several below it."""
        several = self.item if isinstance(self.item, Mapping) else {"": self.item}
        for key, value in several.items():
            yield f"{name}/{key}" if key else name, value

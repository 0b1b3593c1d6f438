"""A configuration whose values are computed when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Lazy(Mapping[str, Any]):
    """A configuration of which some values are computed when they are read, as OmegaConf's."""

    def __getitem__(self, key: str) -> Any:
        if key == "missing":
            raise LookupError("Missing mandatory value: missing")
        return 64

    def __iter__(self) -> Iterator[str]:
        return iter(("missing", "dim"))

    def __len__(self) -> int:
        return 2

"""What the ranks of a process group of torch agree on in its store: no collective, and nobody waits for anybody."""

from __future__ import annotations

import sys
from typing import Any

from otel_ml._internal.error_reporting import reporter

__all__ = ["agreed_id"]


def agreed_id(proposed: str, before: int) -> str | None:
    """Return the id that the first rank has proposed; None where there is no process group yet.

    `before` is how many runs this process has begun: ranks that do the same agree on those of the later ones, too.
    """
    torch, c10d = sys.modules.get("torch.distributed"), sys.modules.get("torch.distributed.distributed_c10d")
    if torch is None or c10d is None or not torch.is_available() or not torch.is_initialized():
        return None
    try:
        store = _shared(c10d._get_default_store())  # noqa: SLF001 (torch has no public name for it)
        # Stores `proposed` where the key is not there yet, which is what the empty text expects, and returns what is
        # there then: the store does both at once, so all ranks get the id of the first, whichever rank that is.
        agreed = store.compare_set(f"otel_ml/run/{before}", "", proposed)
        return str(agreed.decode())
    except Exception as error:  # noqa: BLE001 (stores differ in what they can, and their server may be gone)
        reporter.say(
            "no-agreed-run", f"The ranks cannot agree on a run in the store of torch: {type(error).__name__}: {error}."
        )
        return None


def _shared(store: Any) -> Any:
    """Return the store below prefixes: they change when a process group is made again."""
    while (below := getattr(store, "underlying_store", None)) is not None:
        store = below
    return store

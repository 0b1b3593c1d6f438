"""What `native/` compiles to; `_internal/native.py` says where it is used."""

from collections.abc import Callable
from typing import Any

def bind_buffer(
    records: list[Any],
    now: object,
    current_step: Callable[[], object],
    relieve: Callable[[], None],
    time_ns: Callable[[], int],
    failed: Callable[[str, Exception], None],
    limit: int,
    /,
) -> None: ...
def record_method(metric: type, record: Callable[..., None], /) -> Callable[..., None]: ...
def log_function(
    log: Callable[..., None], rows: dict[tuple[str, ...], Any], row: type, fewest: int, /
) -> Callable[..., None]: ...
def bind_fold(
    pending: type, order: type[tuple[Any, ...]], series: type, row: type, step: type, definitions: object, /
) -> None: ...
def take_apart(folder: Any, part: list[Any], /) -> dict[Any, int]: ...
def reduce(pending: Any, /) -> None: ...

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
def encoders(
    pending: type,
    series: type,
    definition: type,
    reduction: type,
    order: type,
    functions: tuple[Callable[..., Any], ...],
    constants: tuple[bytes, bytes, bytes],
    /,
) -> tuple[Callable[..., list[tuple[int, bytes]]], Callable[..., bytes]]: ...
def span_encoder(
    spans: Callable[..., bytes], beginning: bytes, recording: type, watch: type, step: type, axis: type, /
) -> Callable[..., bytes]: ...

"""What `native/` compiles to; `_internal/native.py` says where it is used."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
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
    pending: type,
    order: type[tuple[Any, ...]],
    series: type,
    row: type,
    step: type,
    definitions: object,
    unsettled: int,
    exponential: type,
    scale: int,
    most_buckets: int,
    /,
) -> None: ...
def fold_records(folder: Any, part: list[Any], /) -> int: ...
def bind_timers(
    timing: type,
    recording: type,
    watch: type,
    step: type,
    state: object,
    again: object,
    now: object,
    spans: list[Any],
    watches: dict[str, Any],
    off: dict[str, Any],
    keep: Callable[[Any], None],
    leave: Callable[[Any], None],
    perf_counter_ns: Callable[[], int],
    most_spans: int,
    /,
) -> None: ...
def bind_alone(begin: Callable[[Any], None], active: ContextVar[Any], /) -> None: ...
def bind_opentelemetry(begin: Callable[[Any], None], variable: ContextVar[Any], key: str, context: type, /) -> None: ...
def timing_methods(
    timing: type,
    enter: Callable[..., Any],
    leave: Callable[..., None],
    /,
) -> tuple[Callable[..., Any], Callable[..., None]]: ...
def timed_function(timed: Callable[..., Any], /) -> Callable[..., Any]: ...
def nothing(*_: object) -> None: ...
def always(answer: object, /) -> Any: ...
def forget_rows() -> None: ...
def set_step_function(
    set_step: Callable[..., None],
    steps: object,
    now: object,
    step: type,
    axis: type,
    default_axis: str,
    time_ns: Callable[[], int],
    kept: int,
    /,
) -> Callable[..., None]: ...
def encoders(
    pending: type,
    series: type,
    definition: type,
    reduction: type,
    order: type,
    buckets: type,
    functions: tuple[Callable[..., Any], ...],
    constants: tuple[bytes, bytes, bytes],
    /,
) -> tuple[Callable[..., list[tuple[int, bytes]]], Callable[..., bytes]]: ...
def span_encoder(
    spans: Callable[..., bytes], beginning: bytes, recording: type, watch: type, step: type, axis: type, /
) -> Callable[..., bytes]: ...
def bind_tensors(tensor: type, parameter: type, exchange: object, /) -> None: ...
def statistics(tensors: list[Any], most: int, /) -> tuple[list[int], list[float], list[int], list[float]] | None: ...
def sums(tensors: list[Any], most: int, share: float, kind: type[tuple[Any, ...]], /) -> Any: ...
def extent(tensor: object, most: int, kind: type[tuple[Any, ...]], /) -> Any: ...
def measures_method(
    measures: type, record: Callable[..., None], step_for: Callable[..., Any], time_ns: Callable[[], int], /
) -> Callable[..., None]: ...
def watch_signal(number: int, /) -> None: ...
def is_signal_waiting(number: int, /) -> bool: ...
def signal_has_begun(number: int, /) -> None: ...
def end_by_signal(number: int, /) -> None: ...
def statm(descriptor: int, page: int, kind: type[tuple[Any, ...]], /) -> Any: ...
def scope_fields(bodies: Sequence[bytes], /) -> bytes: ...
def gathered(messages: list[bytes], offsets: Any, size: int, /) -> bytes: ...
def newest(message: bytes, offsets: Any, /) -> int: ...
def request_reader(part: type[tuple[Any, ...]], /) -> Callable[[bytes], Any]: ...
def find_form(forms: Any, message: bytes, /) -> Any: ...
def message_reader(
    fragment: type[tuple[Any, ...]], packed: type[tuple[Any, ...]], watermark: type[tuple[Any, ...]], /
) -> Callable[..., Any]: ...
def third_party_points(
    fields: bytes, known: dict[bytes, int], resolve: Callable[[bytes, int], int], /
) -> tuple[bytes, bytes, bytes, bytes, bytes, list[tuple[Any, ...] | None] | None] | None: ...

"""`log_params()`, `log_text()`, `event()` and the like: what is neither a scalar at a step nor a file.

A call checks what it can and copies; encoding and drawing happen in the background.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from otel_ml._internal.devices.arrays import ArrayLike
from otel_ml._internal.error_reporting import never_raises, reporter
from otel_ml._internal.events import media
from otel_ml._internal.events.config_values import TOO_MUCH, readable
from otel_ml._internal.events.event_arguments import attributes_at, checked_name, is_on, located_name
from otel_ml._internal.events.event_queue import current_events, refuse
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.safe_repr import exact_text, safe_repr, text_of
from otel_ml._internal.signature import public
from otel_ml._internal.steps.step import step_for
from otel_ml.redaction import redacted_values
from otel_ml.wire import attributes as keys

__all__ = [
    "event",
    "log_audio",
    "log_figure",
    "log_histogram",
    "log_image",
    "log_params",
    "log_summary",
    "log_table",
    "log_text",
]

T = TypeVar("T")

_A_SUMMARY = {"test/accuracy": 0.93}


def _log_made(
    event_name: str,
    call: str,
    name: str,
    step: int | None,
    axis: str | None,
    prepare: Callable[[], Callable[[], media.Made]],
) -> None:
    if not is_on() or (exact := checked_name(name, call)) is None:
        return
    time_ns = time.time_ns()
    # The step is that of the call: by the time of `records()` the program is further.
    at = step_for(step, axis, call, 1)
    stage = None if at is None else at.stage
    # A stage without a name records nothing (docs/protocol.md §2.7).
    if at is None or (stage is not None and stage.name is None):
        return
    attributes = attributes_at(at, exact if stage is None else stage.named(exact))
    try:
        make = prepare()
    except Exception as error:
        if reporter.strict:
            raise
        refuse(call, error)
        return

    def records() -> Iterator[LogRecord]:
        body, more = make()
        yield LogRecord(event_name, body, {**attributes, **more}, time_ns)

    current_events().put(call, records)


@public
@never_raises
def log_params(params: Any, *, prefix: str | None = None) -> None:
    """Record hyper-parameters: a (nested) mapping, dataclass, attrs class, namespace, pydantic model or OmegaConf.

    What of it cannot be read, such as OmegaConf's `???`, is reported, and costs that value only. May be called again to
    add some. Where ranks disagree, the lowest rank's value counts. Texts that look like secrets, by their name
    (`api_key`, `password`) or their form (`hf_…`), are recorded as `***`.
    """
    if not is_on():
        return
    found = _read("log_params()", params)
    if not isinstance(found, dict):
        reporter.drop(
            "bad_event", f"log_params(): expected a mapping, dataclass or namespace, got {safe_repr(params)}."
        )
        return
    if prefix is not None and not isinstance(prefix, str):
        reporter.drop("bad_event", f"log_params(): expected a prefix such as 'model', got {safe_repr(prefix)}.")
        return
    if above := exact_text(prefix or "").rstrip("/"):
        found = {above: found}
    record = LogRecord(keys.EVENT_PARAMS, redacted_values(found))
    current_events().put("log_params()", lambda: (record,))


def _read(call: str, value: Any) -> object:
    """Return a structure of the program's as it travels, and say what of it cannot be read."""
    found, problems = readable(value)
    if problems:
        first = "; ".join(f"{place or 'it'} ({why})" for place, why in islice(problems.items(), 3))
        more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
        is_cut = TOO_MUCH.issuperset(problems.values())  # by the hundred, where prompts are recorded one by one
        others = " Others are cut, too, without a further word." if is_cut else ""
        reporter.wrong(
            "unreadable-value",
            f"{call}: cannot read {first}{more}. That is recorded as the text it has, or left out; all else is "
            f"recorded.{others}",
            kind=f"{call} cuts" if is_cut else "",
        )
    return found


@never_raises
def log_summary(values: Mapping[str, float]) -> None:
    """Record final scalars of the run."""
    if not is_on():
        return
    if not isinstance(values, Mapping):
        reporter.drop(
            "bad_event", f"summary(): expected names and numbers such as {_A_SUMMARY}, got {safe_repr(values)}."
        )
        return
    numbers = {}
    # A copy of the keys: to read a value runs the program's code, which may add some.
    for key in list(values):
        name = text_of(key)
        if checked_name(name, "summary()") is not None and (number := _number(values, key)) is not None:
            numbers[name] = number
    if numbers:
        record = LogRecord(keys.EVENT_SUMMARY, numbers)
        current_events().put("summary()", lambda: (record,))


def _number(values: Mapping[Any, Any], key: object) -> float | None:
    # What is said where not even the value can be read.
    got = "nothing that can be read"
    try:
        value = values[key]
        got = safe_repr(value)
        return float(value)
    except Exception:  # noqa: BLE001 (the program's own classes)
        reporter.drop("bad_value", f"summary(): expected a number for {safe_repr(key)}, got {got}.")
        return None


@public
@never_raises
def log_text(name: str, text: str, step: int | None = None, *, axis: str | None = None) -> None:
    """Record a text at a step, the current one by default; Markdown where the backend renders it."""
    _log_made(keys.EVENT_TEXT, "log_text()", name, step, axis, lambda: media.text(text))


@public
@never_raises
def log_table(
    name: str, data: Any, columns: Sequence[str] | None = None, *, step: int | None = None, axis: str | None = None
) -> None:
    """Record a table: rows with `columns`, dictionaries, a dictionary of columns, or a pandas DataFrame."""
    _log_made(keys.EVENT_TABLE, "log_table()", name, step, axis, lambda: media.table(data, columns))


@public
@never_raises
def log_image(
    name: str, image: ArrayLike, step: int | None = None, *, axis: str | None = None, caption: str | None = None
) -> None:
    """Record an image: an array or tensor (h, w), (h, w, c) or (c, h, w), a PIL image, or PNG bytes.

    Integers are 0–255, floats 0–1.
    """
    _log_made(keys.EVENT_IMAGE, "log_image()", name, step, axis, lambda: media.image(image, caption))


@public
@never_raises
def log_figure(
    name: str, figure: Any, step: int | None = None, *, axis: str | None = None, caption: str | None = None
) -> None:
    """Record a matplotlib figure as an image. It is drawn in the call: you may close it right after."""
    _log_made(keys.EVENT_IMAGE, "log_figure()", name, step, axis, lambda: media.figure(figure, caption))


@public
@never_raises
def log_audio(
    name: str,
    audio: ArrayLike,
    sample_rate: int,
    *,
    step: int | None = None,
    axis: str | None = None,
    caption: str | None = None,
) -> None:
    """Record a sound: (samples,) or (samples, channels), floats −1–1 or 16-bit integers, or a WAV file's bytes."""
    _log_made(keys.EVENT_AUDIO, "log_audio()", name, step, axis, lambda: media.audio(audio, int(sample_rate), caption))


@public
@never_raises
def log_histogram(
    name: str,
    values: ArrayLike,
    step: int | None = None,
    *,
    axis: str | None = None,
    bins: int = 64,
    edges: ArrayLike | None = None,
) -> None:
    """Record the distribution of `values`; or, with `edges`, `values` are counts between them.

    For one histogram over all ranks record scalars with `reduce="histogram"` instead.
    """
    _log_made(
        keys.EVENT_HISTOGRAM, "log_histogram()", name, step, axis, lambda: media.histogram(name, values, bins, edges)
    )


@public
@never_raises
def event(
    name: str, attributes: Mapping[str, Any] | None = None, *, step: int | None = None, axis: str | None = None
) -> None:
    """Record that something happened: `event("preempted", {"node": "n7"})`."""
    if not is_on() or checked_name(name, "event()") is None:
        return
    located = located_name(name, step, axis, "event()")
    if located is None:
        return
    # An event of the program's has its name as `event_name`.
    del located[keys.NAME]
    given = _read("event()", {} if attributes is None else attributes)
    if not isinstance(given, dict):
        reporter.drop("bad_event", f"event(): expected attributes in a mapping, got {safe_repr(attributes)}.")
        return
    # The step comes last: it counts where an attribute is called as its key.
    record = LogRecord(name, None, {**given, **located})
    current_events().put("event()", lambda: (record,))

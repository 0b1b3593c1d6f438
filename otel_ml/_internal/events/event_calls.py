"""`log_params()`, `log_text()`, `log_artifact()` and the like: everything that is not a scalar at a step.

A call checks what it can and copies; encoding, drawing, hashing and reading happen in the background.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from otel_ml._internal.devices.arrays import ArrayLike
from otel_ml._internal.error_reporting import never_raises, reporter
from otel_ml._internal.events import artifacts, media
from otel_ml._internal.events.config_values import TOO_MUCH, readable
from otel_ml._internal.events.event_queue import EventQueue, current_events, refuse
from otel_ml._internal.events.file_reader import Pace
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.messages.recorder import recorder
from otel_ml._internal.record.after_shutdown import AFTER_SHUTDOWN
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml._internal.series.buffer import begin_run
from otel_ml._internal.signature import public
from otel_ml._internal.steps.axes import Step
from otel_ml._internal.steps.step import step_for
from otel_ml.redaction import redacted_values
from otel_ml.wire import attributes as keys
from otel_ml.wire.published_name import is_own

__all__ = [
    "event",
    "log_artifact",
    "log_audio",
    "log_checkpoint",
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


def _is_on() -> bool:
    """Whether there is a run, started now where the environment asks for one."""
    if AFTER_SHUTDOWN.is_now:
        AFTER_SHUTDOWN.refuse(1)
    return recorder.enabled and begin_run()


def _checked_name(name: object, call: str) -> str | None:
    if isinstance(name, str) and name and not is_own(name):
        return name
    expected = f"a non-empty string that has no {keys.RESERVED_PREFIX!r} at its beginning or after a '/'"
    reporter.drop("bad_name", f"{call}: expected a name, got {safe_repr(name)}. Pass {expected}.")
    return None


def _located(name: str, index: int | None, axis: str | None, call: str) -> dict[str, object] | None:
    """Return the attributes name, and step and axis where they are known; None (counted, said) for a bad step."""
    step = step_for(index, axis, call, 1)
    return None if step is None else _at(step, name)


def _at(step: Step, name: str) -> dict[str, object]:
    attributes: dict[str, object] = {keys.NAME: name}
    if step.axis is not None and step.index is not None:
        attributes[keys.STEP] = step.index
        attributes[keys.AXIS] = step.axis.name
    return attributes


def _log_made(
    event_name: str,
    call: str,
    name: str,
    step: int | None,
    axis: str | None,
    prepare: Callable[[], Callable[[], media.Made]],
) -> None:
    if not _is_on() or _checked_name(name, call) is None:
        return
    time_ns = time.time_ns()
    at = step_for(step, axis, call, 1)
    stage = None if at is None else at.stage
    if at is None or (stage is not None and stage.name is None):
        return
    attributes = _at(at, name if stage is None else stage.named(name))
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
    if not _is_on():
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
    if prefix:
        found = {prefix: found}
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
    if not _is_on():
        return
    if not isinstance(values, Mapping):
        reporter.drop(
            "bad_event", f"summary(): expected names and numbers such as {_A_SUMMARY}, got {safe_repr(values)}."
        )
        return
    numbers = {}
    for key in list(values):
        name = text_of(key)
        if _checked_name(name, "summary()") is not None and (number := _number(values, key)) is not None:
            numbers[name] = number
    if numbers:
        record = LogRecord(keys.EVENT_SUMMARY, numbers)
        current_events().put("summary()", lambda: (record,))


def _number(values: Mapping[Any, Any], key: object) -> float | None:
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
    _log_made(keys.EVENT_TEXT, "log_text()", name, step, axis, lambda: lambda: (str(text), {}))


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
def log_artifact(
    path: str | PathLike[str],
    *,
    step: int | None = None,
    axis: str | None = None,
    name: str | None = None,
    type: str = "file",  # noqa: A002 (a published name)
    aliases: Iterable[str] | None = (),
) -> None:
    """Record a file or a folder. It is opened at the call and read soon after: it may be removed or replaced at once.

    What must wait some seconds is to write into the same file, and to remove a folder of more than 128 files. Up to
    4 MiB a file travels; of larger ones path, size and SHA-256, and the service links or copies them where it sees
    them: what becomes of their names matters only where they are on another disk than the run, or the service on
    another host. Metrics do not wait for a file that is being read.
    """
    _log_artifact("log_artifact()", path, name, type, step, axis, aliases)


@never_raises
def log_artifact_as(
    path_in: str,
    path: str | PathLike[str],
    *,
    name: str,
    type: str,  # noqa: A002 (a published name)
    aliases: Iterable[str],
) -> None:
    """Record a file as `path_in` of an artifact, or a folder below it, whatever they are called where they are."""
    _log_artifact("log_artifact()", path, name, type, None, None, aliases, path_in)


@public
@never_raises
def log_checkpoint(
    path: str | PathLike[str],
    step: int | None = None,
    *,
    axis: str | None = None,
    name: str | None = None,
    aliases: Iterable[str] | None = ("latest",),
) -> None:
    """Record a checkpoint: an artifact of type `checkpoint`, with aliases such as `best`."""
    _log_artifact("log_checkpoint()", path, name, "checkpoint", step, axis, aliases)


def _log_artifact(
    call: str,
    path: str | PathLike[str],
    name: str | None,
    artifact_type: str,
    step: int | None,
    axis: str | None,
    aliases: Iterable[str] | None,
    path_in: str = "",
) -> None:
    if not _is_on():
        return
    found = _found(path, call)
    if found is None:
        return
    attributes = _located(name or found.name, step, axis, call)
    if attributes is None:
        return
    chosen = _aliases(aliases, call)
    time_ns = time.time_ns()
    opened, events = artifacts.open_artifact(found), current_events()  # of this run: the reader's thread has no context
    is_folder = found.is_dir()
    of_each = {"ml.artifact.type": artifact_type, "ml.artifact.aliases": list(chosen)}

    def records(pace: Pace) -> Iterator[LogRecord]:
        if pace.is_over():
            _count_unread(len(opened) or artifacts.count_files(found), found, call)
            return
        files = opened or list(artifacts.artifact_files(found))
        for at, file in enumerate(files):
            if pace.is_over():
                _count_unread(len(files) - at, found, call)
                return
            try:
                content, more = _read_or_located(file.moved(path_in, is_below=is_folder), call, pace.has_time, events)
            except OSError as error:  # the other files of a folder are not lost with it
                reporter.dropped["missing_artifact"] += 1
                why = f"{error.strerror or error}"
                reporter.say(
                    "missing-artifact", f"{call}: {str(file.path)!r} is not in the run: it cannot be read ({why})."
                )
                continue
            yield LogRecord(keys.EVENT_ARTIFACT, content, {**attributes, **of_each, **more}, time_ns)

    if not events.put_file(call, records):
        artifacts.close_artifact(opened)


def _read_or_located(
    file: artifacts.ArtifactFile, call: str, has_time: Callable[[], bool], events: EventQueue
) -> tuple[bytes, Mapping[str, object]]:
    """Return content and attributes of a file; at the end of the process perhaps only where it is."""
    read = artifacts.read_artifact(file, run_folder=events.run_folder, go_on=has_time) if has_time() else None
    if read is not None:
        return read
    reporter.dropped["missing_content"] += 1
    reporter.say(
        "missing-content",
        f"{call}: {str(file.path)!r} was not read before the process ended: the run has where it is and its size. "
        "OTEL_ML_EXIT_WAIT gives it more time.",
        kind=f"unread: {call}",
    )
    return artifacts.unread_artifact(file)


def _count_unread(files: int, path: Path, call: str) -> None:
    """Count files of which there was no time to record even where they are."""
    reporter.dropped["missing_artifact"] += files
    which = repr(str(path)) if files == 1 else f"{files:,} files of {str(path)!r}"
    reporter.say(
        "missing-artifact",
        f"{call}: {which} could not be looked at before the process ended: not in the run. "
        "OTEL_ML_EXIT_WAIT gives it more time.",
        kind=f"not looked at: {call}",
    )


def _found(path: str | PathLike[str], call: str) -> Path | None:
    """Return the file or folder that is meant; None (counted, said) where there is none. An empty path is none."""
    given = fspath(path) if isinstance(path, (str, PathLike)) else None
    if not given or not isinstance(given, str):
        reporter.drop("bad_event", f"{call}: expected a path, got {safe_repr(path)}.")
        return None
    found = Path(given).expanduser().absolute()
    if not found.exists():
        reporter.drop(
            "missing_artifact", f"{call}: no file or folder {str(path)!r}. Expected one that exists at the call."
        )
        return None
    return found


def _aliases(aliases: Iterable[str] | None, call: str) -> tuple[str, ...]:
    """Return further names of an artifact; it is kept without them where they are none."""
    try:
        return (aliases,) if isinstance(aliases, str) else tuple(map(str, aliases or ()))
    except TypeError:
        reporter.wrong(
            "bad-event", f"{call}: expected aliases such as ['best'], got {safe_repr(aliases)}. It has none."
        )
        return ()


@public
@never_raises
def event(
    name: str, attributes: Mapping[str, Any] | None = None, *, step: int | None = None, axis: str | None = None
) -> None:
    """Record that something happened: `event("preempted", {"node": "n7"})`."""
    if not _is_on() or _checked_name(name, "event()") is None:
        return
    located = _located(name, step, axis, "event()")
    if located is None:
        return
    del located[keys.NAME]
    given = _read("event()", {} if attributes is None else attributes)
    if not isinstance(given, dict):
        reporter.drop("bad_event", f"event(): expected attributes in a mapping, got {safe_repr(attributes)}.")
        return
    record = LogRecord(name, None, {**given, **located})
    current_events().put("event()", lambda: (record,))

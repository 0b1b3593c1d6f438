"""`log_artifact()` and `log_checkpoint()`: a file or a folder is opened in the call, and read in the background."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path

from otel_ml._internal.error_reporting import never_raises, reporter
from otel_ml._internal.events import artifacts
from otel_ml._internal.events.event_arguments import is_on, located_name
from otel_ml._internal.events.event_queue import EventQueue, current_events
from otel_ml._internal.events.file_reader import ReadLimit
from otel_ml._internal.events.log_record import LogRecord
from otel_ml._internal.events.temporary_folder import TemporaryFolder
from otel_ml._internal.safe_repr import exact_text, safe_repr
from otel_ml._internal.signature import public
from otel_ml.wire import attributes as keys

__all__ = ["log_artifact", "log_artifact_as", "log_checkpoint"]


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
    if not is_on():
        return
    found = _found(path, call)
    if found is None:
        return
    attributes = _located(name, found, step, axis, call)
    if attributes is None:
        return
    # Read in the call: an iterable of the program's is not to be gone through by the reader's thread.
    chosen = _aliases(aliases, call)
    time_ns = time.time_ns()
    events = current_events()  # of this run: the reader's thread has no context
    # What is ours stays until it is read: it need not be open, where only so many files may be.
    ours = TemporaryFolder.around(found)
    opened = [] if ours is not None else artifacts.open_artifact(found)
    is_folder = found.is_dir()
    of_each = {"ml.artifact.type": _kind(artifact_type, call), "ml.artifact.aliases": list(chosen)}

    def records(limit: ReadLimit) -> Iterator[LogRecord]:
        if limit.is_over():
            # `opened` is empty where the call found more files than may be open.
            _count_unrecorded(len(opened) or artifacts.count_files(found), found, call)
            return
        files = opened or list(artifacts.artifact_files(found))
        for at, file in enumerate(files):
            # Of a file of ours the place, for which alone there is time, is nowhere soon.
            if limit.is_over() or (ours is not None and not limit.has_time()):
                _count_unrecorded(len(files) - at, found, call)
                return
            placed = replace(file.moved(path_in, is_below=is_folder), stays=ours is None)
            try:
                content, more = _read_or_located(placed, call, limit.has_time, events)
            except OSError as error:  # the other files of a folder are not lost with it
                reporter.dropped["missing_artifact"] += 1
                why = f"{error.strerror or error}"
                reporter.say(
                    "missing-artifact", f"{call}: {str(file.path)!r} is not in the run: it cannot be read ({why})."
                )
                continue
            yield LogRecord(keys.EVENT_ARTIFACT, content, {**attributes, **of_each, **more}, time_ns)

    if not events.put_file(call, records):
        # Nobody reads them now, and each that is open counts for `MAX_OPEN`.
        artifacts.close_artifact(opened)


def _read_or_located(
    file: artifacts.ArtifactFile, call: str, has_time: Callable[[], bool], events: EventQueue
) -> tuple[bytes, Mapping[str, object]]:
    """Return content and attributes of a file; at the end of the process perhaps only where it is.

    Raises:
        OSError: it cannot be read, or there was no time to, and it does not stay.
    """
    read = artifacts.read_artifact(file, run_folder=events.run_folder, go_on=has_time) if has_time() else None
    if read is not None:
        return read
    if not file.stays:
        raise TimeoutError("the process ends; OTEL_ML_EXIT_WAIT gives it more time")
    reporter.dropped["missing_content"] += 1
    reporter.say(
        "missing-content",
        f"{call}: {str(file.path)!r} was not read before the process ended: the run has where it is and its size. "
        "OTEL_ML_EXIT_WAIT gives it more time.",
        kind=f"unread: {call}",
    )
    return artifacts.reference_to_artifact(file)


def _count_unrecorded(files: int, path: Path, call: str) -> None:
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
    try:
        given = fspath(path) if isinstance(path, (str, PathLike)) else None
    except Exception:  # noqa: BLE001 (of a class of the program's)
        given = None
    if not given or not isinstance(given, str):
        reporter.drop("bad_event", f"{call}: expected a path, got {safe_repr(path)}.")
        return None
    with suppress(OSError, ValueError, RuntimeError):  # a name that is too long, no text of the file system's, no home
        found = Path(given).expanduser().absolute()
        if found.exists():
            return found
    shown = safe_repr(given, 500)
    reporter.drop("missing_artifact", f"{call}: no file or folder {shown}. Expected one that exists at the call.")
    return None


def _located(name: object, path: Path, step: int | None, axis: str | None, call: str) -> Mapping[str, object] | None:
    """Return name, step and axis of an artifact, called as its file by default; None (counted, said) of none."""
    if name is not None and not isinstance(name, str):
        reporter.drop("bad_name", f"{call}: expected a name such as 'model', got {safe_repr(name)}. Pass a string.")
        return None
    return located_name(name or path.name, step, axis, call)


def _kind(given: object, call: str) -> str:
    """Return the type of an artifact; where it is not a text, the one of a file."""
    if isinstance(given, str):
        return given
    reporter.wrong("bad-event", f"{call}: expected a type such as 'dataset', got {safe_repr(given)}. It is 'file'.")
    return "file"


def _aliases(aliases: Iterable[str] | None, call: str) -> tuple[str, ...]:
    """Return further names of an artifact; it is kept without them where they are none."""
    try:
        return (aliases,) if isinstance(aliases, str) else tuple(map(exact_text, () if aliases is None else aliases))
    except Exception:  # noqa: BLE001 (of a class of the program's)
        reporter.wrong(
            "bad-event", f"{call}: expected aliases such as ['best'], got {safe_repr(aliases)}. It has none."
        )
        return ()

"""Remove a run's folder while nobody can begin to write there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from otel_ml.wire.rendezvous import Rendezvous, rendezvous_of
from otel_ml_service.live_runs.state_files import meeting_place
from otel_ml_service.storage.hold import held
from otel_ml_service.stored_runs.alone import alone
from otel_ml_service.stored_runs.recorded_id import recorded_id
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.unfinished import has_writers, marked_id, spools_in

__all__ = ["remove_run"]


def remove_run(run: RunFolder, *, unfinished: bool) -> str:
    """Remove a run's folder; return why that cannot be, "" where it is done.

    What was known of the run before may be otherwise by now: its job may have gone on.

    Args:
        run: its folder.
        unfinished: whether also where a service was not done with it.
    """
    try:
        with _kept_out(run) as (is_nobodys, places):
            if not is_nobodys or any(map(has_writers, places)):
                return f"{run.path} is not removed: it is being recorded again."
            if not unfinished and (marked_id(run) is not None or any(map(spools_in, places))):
                return f"{run.path} is not removed: it is not finished, or not in all of its backends."
            shutil.rmtree(run.path)
    except OSError as error:  # also where its owner does not let this user see whether a service has it
        return f"{run.path} is not removed: {error.strerror} ({error.filename})."
    with suppress(OSError):
        run.path.parent.rmdir()  # the experiment's, if that was its last
    return ""


@contextmanager
def _kept_out(run: RunFolder) -> Iterator[tuple[bool, list[Rendezvous]]]:
    """Let no service begin with the run; yield whether there is none, and where its processes may meet."""
    run_id = recorded_id(run)
    places = list(dict.fromkeys([meeting_place(run.database.parent, run_id), rendezvous_of(run_id)]))
    try:
        with ExitStack() as holding:
            # In the order in which a job's service takes them: of two that begin at once, one has all of them.
            is_nobodys = all(_is_ours(place, holding) for place in places) and all(
                holding.enter_context(held(run.database.with_name(name))) for name in ("journal.db", "run.db")
            )
            yield is_nobodys, places
    finally:
        for place in places:
            place.remove()


def _is_ours(place: Rendezvous, holding: ExitStack) -> bool:
    try:
        return holding.enter_context(alone(place))
    except OSError:  # nobody can meet there
        return True

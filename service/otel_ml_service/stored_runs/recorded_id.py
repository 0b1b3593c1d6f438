"""The id with which a run was recorded: backends know the run by it, and its folder is called so where that can be."""

from __future__ import annotations

from otel_ml.wire.rendezvous import path_part
from otel_ml_service.stored_runs.noted_writers import noted_writers
from otel_ml_service.stored_runs.run_folders import RunFolder
from otel_ml_service.stored_runs.unfinished import marked_id

__all__ = ["recorded_id"]


def recorded_id(run: RunFolder) -> str:
    """Return the id that the run's processes said, as far as it is known here; else the name of its folder.

    Who asks a backend for the run, or writes it again, by the folder's name begins a second run there.
    """
    said = (marked_id(run), *(writer["experiment"] for writer in noted_writers(run)))
    # A folder that was renamed, or copied, is another run: what it was recorded as is not told of it.
    return next((one for one in said if one and path_part(one) == run.id), run.id)

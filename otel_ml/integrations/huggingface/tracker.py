"""`OtelMLTracker`: what `accelerate` logs, in the run; every process joins it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import otel_ml
from otel_ml.integrations.huggingface.values import flat, log_values
from otel_ml.integrations.implicit_steps import rows_of
from otel_ml.integrations.missing_package import PackageError
from otel_ml.warn_once import reporter

_ACCELERATE = "accelerate>=1.8"

try:
    from accelerate.state import PartialState
    from accelerate.tracking import GeneralTracker
except ImportError as error:
    raise PackageError("OtelMLTracker", _ACCELERATE) from error
if not hasattr(GeneralTracker, "start"):  # nobody would begin the run
    raise PackageError("OtelMLTracker", _ACCELERATE)

__all__ = ["OtelMLTracker"]


class OtelMLTracker(GeneralTracker):  # type: ignore[misc] # accelerate's types are not looked at
    """Accelerate's tracker for otel_ml: `Accelerator(log_with=OtelMLTracker("digits"))`.

    The main process begins the run at `init_trackers()`, where Accelerate asks no other; those join with their first
    record. So does `accelerator.log()` record there alone; `otel_ml.log()` and timers count on all. `end_training()`
    ends the run.

    Args:
        run_name: W&B project, MLflow experiment, folder: the experiment of `otel_ml.init()`.
        **arguments: the other arguments of `otel_ml.init()`.
    """

    name = "otel_ml"
    requires_logging_directory = False
    main_process_only = False

    def __init__(self, run_name: str | None = None, **arguments: Any) -> None:
        super().__init__()
        self._arguments: Mapping[str, Any] = {"experiment": run_name, **arguments}
        self._run: otel_ml.Run | None = None

    def __getstate__(self) -> dict[str, Any]:
        """In another process `start()` joins the run anew."""
        return {**vars(self), "_run": None}

    @property
    def tracker(self) -> otel_ml.Run | None:
        """The run: `accelerator.get_tracker("otel_ml").tracker.summary({…})`; None once it has ended."""
        return self._run if self._run is not None and self._run.is_active else None

    def start(self) -> None:
        """Join the run, with the rank that Accelerate has."""
        if self._run is None or not self._run.is_active:
            place = PartialState()
            alone = place.num_processes == 1
            # A process alone has no rank to say: the launcher's variables, if there are any, tell more.
            where = {} if alone else {"rank": place.process_index, "world_size": place.num_processes}
            self._run = otel_ml.init(**{**where, **self._arguments})

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Record hyper-parameters, from the main process."""
        if PartialState().is_main_process:
            with self._inside():
                otel_ml.log_params(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **options: Any) -> None:
        """Record values at a step; `options` are those of `otel_ml.log()`, such as `reduce="sum"`.

        Without a step it is the one that the program is in, else a row of its own.
        """
        names = flat(values) if isinstance(values, Mapping) else ()
        with self._inside():
            at = step if "axis" in options or self._run is None else rows_of(self._run.id).step_of(names, step)
            log_values(values, at, **options)

    def log_images(self, values: Mapping[str, Any], step: int | None = None, **options: Any) -> None:
        """Record images, one or several under a name; of several each is numbered. Options: `axis`, `caption`."""
        taken = _taken("log_images()", options, "axis", "caption")
        for name, given in values.items():
            images = _pictures(given)
            with self._inside():
                for number, image in enumerate(images):
                    otel_ml.log_image(name if len(images) == 1 else f"{name}/{number}", image, step=step, **taken)

    def log_table(
        self,
        table_name: str,
        columns: Any = None,
        data: Any = None,
        dataframe: Any = None,
        step: int | None = None,
        **options: Any,
    ) -> None:
        """Record a table; without `columns` the first row of `data` names them, as in Accelerate's ClearML tracker.

        Option: `axis`.
        """
        rows = data if dataframe is None else dataframe
        if columns is None and isinstance(rows, (list, tuple)) and rows and isinstance(rows[0], (list, tuple)):
            columns, rows = rows[0], rows[1:]
        with self._inside():
            otel_ml.log_table(table_name, rows, columns, step=step, **_taken("log_table()", options, "axis"))

    def log_figure(self, figure: Any, artifact_file: str, **options: Any) -> None:
        """Record a figure of matplotlib under a name, as Accelerate's MLflow tracker does.

        Options: `step`, `axis`, `caption`.
        """
        with self._inside():
            otel_ml.log_figure(artifact_file, figure, **_taken("log_figure()", options, "step", "axis", "caption"))

    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Record a file, below `artifact_path`, as Accelerate's MLflow tracker does."""
        name = Path(local_path).name
        with self._inside():
            otel_ml.log_artifact(local_path, name=f"{artifact_path}/{name}" if artifact_path else name)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Record a folder with all its files, as Accelerate's MLflow tracker does."""
        with self._inside():
            otel_ml.log_artifact(local_dir, name=artifact_path or Path(local_dir).name, type="folder")

    def finish(self) -> None:
        """End the run, and no other that the program has begun. What is logged later is in no run, and said."""
        if self._run is not None:
            self._run.shutdown()

    def _inside(self) -> AbstractContextManager[None]:
        return nullcontext() if self._run is None else self._run.use()


def _taken(call: str, options: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Return the options of a call that otel_ml has, and say which it has not."""
    others = [name for name in options if name not in known]
    if others:
        reporter.say(
            "not-kept",
            f"OtelMLTracker.{call} has no option {', '.join(others)}: it is recorded without. "
            f"Known: {', '.join(known)}.",
            kind=f"{call}: {others}",
        )
    return {name: value for name, value in options.items() if name in known}


def _pictures(given: Any) -> Sequence[Any]:
    """Return several pictures: a list of them, or a batch in one array. All else is one."""
    is_several = isinstance(given, (list, tuple)) or getattr(given, "ndim", 0) > _DIMENSIONS
    return given if is_several else [given]


_DIMENSIONS = 3
"""Of an array that is one picture, at most: height, width, channels."""

"""What a writer records as numbers: scalars, distributions, curves; what is looked at is `media_writer`'s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import otel_ml
from otel_ml.compat.tensorboard.bins import USUAL_BINS, counted
from otel_ml.compat.tensorboard.hparams_session import session_of
from otel_ml.compat.tensorboard.media_writer import MediaWriter
from otel_ml.compat.tensorboard.numbers import is_empty
from otel_ml.compat.tensorboard.open_writers import WRITERS
from otel_ml.compat.tensorboard.precision_recall import precision_and_recall
from otel_ml.compat.tracking.as_number import scalars
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.wire.attributes import SESSIONS_PARAM

__all__ = ["SummaryWriter"]


class SummaryWriter(MediaWriter):
    """What `torch.utils.tensorboard.SummaryWriter` and that of tensorboardX take, also by place, in either's order.

    Without `global_step`, each tag counts its own calls.
    """

    # --- scalars -------------------------------------------------------------------------------------------------

    @reports_unrecordable
    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool | str = False,
        double_precision: bool | str = False,
        display_name: str = "",
        summary_description: str = "",
    ) -> None:
        """Record a value; of one rank's values of a tag at a step the last counts."""
        if _is_described(display_name, summary_description, new_style, double_precision):
            not_kept(f"add_scalar({tag!r}, display_name=…)", "the value has its tag as its name.")
        name, step = self._at(tag, global_step, walltime)
        WRITERS.counts.log(scalars({name: scalar_value}), step)

    @reports_unrecordable
    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Record several values as `main_tag/tag`."""
        name, step = self._at(main_tag, global_step, walltime)
        WRITERS.counts.log(scalars({f"{name}/{tag}": value for tag, value in tag_scalar_dict.items()}), step)

    @reports_unrecordable
    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Any] | str | None = None,
        run_name: str | int | None = None,
        global_step: int | None = None,
        name: str | None = None,
    ) -> None:
        """Record hyper-parameters and final values: TensorBoard's own tab, parameters and summary elsewhere.

        Each call is a row of that tab. In other backends what a later call gives begins with its `run_name`. By place
        tensorboardX's `name` and `global_step` may follow the values, too.
        """
        given, called = session_of(hparam_domain_discrete, run_name, global_step, name)
        options_not_kept(
            "add_hparams", "parameters have no domain, and the values beside them are final ones.", **given
        )
        if not self._is_open:
            self._enter()
        # The first set has no prefix: most programs have one, and its parameters are those of the run.
        if WRITERS.sessions is None:
            WRITERS.sessions = []
            otel_ml.log_params(hparam_dict)
            self._run.summary(metric_dict)
            return
        session = called or f"session-{len(WRITERS.sessions) + 2}"
        # A set that is given again under its name is one row.
        WRITERS.sessions = list(dict.fromkeys([*WRITERS.sessions, session]))
        otel_ml.log_params({SESSIONS_PARAM: WRITERS.sessions, session: dict(hparam_dict)})
        self._run.summary({f"{session}/{key}": value for key, value in metric_dict.items()})

    # --- distributions -------------------------------------------------------------------------------------------

    @reports_unrecordable
    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Record a distribution, of 64 bins where `bins` is neither a number, nor edges, nor a rule of numpy's."""
        name, where = self._beside(tag, global_step, walltime)
        if is_empty(values):
            raise ValueError("the input has no element")
        bins = USUAL_BINS if isinstance(bins, str) and bins == "tensorflow" else bins
        # Counted where the values are; nothing waits for a device. All other bins are counted by numpy on the host.
        if isinstance(bins, int) and (max_bins is None or bins <= max_bins):
            otel_ml.log_histogram(name, values, bins=bins, **where)
        else:
            counts, edges = counted(values, bins, max_bins)
            otel_ml.log_histogram(name, counts, edges=edges, **where)

    @reports_unrecordable
    def add_histogram_raw(
        self,
        tag: str,
        min: float,  # noqa: A002 (TensorBoard's names)
        max: float,  # noqa: A002
        num: int,
        sum: float,  # noqa: A002
        sum_squares: float,
        bucket_limits: Any,
        bucket_counts: Any,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Record a distribution that is counted already: `bucket_limits` are upper ends."""
        del max, num, sum, sum_squares
        name, where = self._beside(tag, global_step, walltime)
        limits = [float(limit) for limit in bucket_limits]
        # TensorBoard's buckets have upper ends alone. The first one begins at `min`, or where that is not below its
        # end one below it.
        lowest = float(min) if limits and float(min) < limits[0] else (limits[0] - 1 if limits else 0.0)
        otel_ml.log_histogram(name, bucket_counts, edges=[lowest, *limits], **where)

    @reports_unrecordable
    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Record how the elements of a tensor are spread."""
        self.add_histogram(tag, tensor, global_step, walltime=walltime)

    @reports_unrecordable
    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Record precision and recall at thresholds from 0 to 1 as a table; both are 0 where nothing is predicted."""
        precision, recall = precision_and_recall(labels, predictions, num_thresholds, weights)
        self._log_curve(tag, {"precision": precision, "recall": recall}, global_step, walltime)

    @reports_unrecordable
    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Record precision and recall that are computed already as a table, with what was counted for them."""
        del num_thresholds, weights
        columns = {
            "precision": precision,
            "recall": recall,
            "true_positives": true_positive_counts,
            "false_positives": false_positive_counts,
            "true_negatives": true_negative_counts,
            "false_negatives": false_negative_counts,
        }
        self._log_curve(tag, columns, global_step, walltime)

    def _log_curve(
        self, tag: str, columns: Mapping[str, Iterable[Any]], global_step: int | None, walltime: float | None
    ) -> None:
        values = [[float(one) for one in row] for row in zip(*columns.values(), strict=True)]
        last = max(len(values) - 1, 1)
        name, where = self._beside(tag, global_step, walltime)
        rows = [[number / last, *row] for number, row in enumerate(values)]
        otel_ml.log_table(name, rows, ["threshold", *columns], **where)

    # --- what is not kept ----------------------------------------------------------------------------------------

    @reports_unrecordable
    def add_custom_scalars(self, layout: Any) -> None:
        """Say that it is not kept."""
        del layout
        not_kept("add_custom_scalars()", "the values are recorded, the layout is not.")

    @reports_unrecordable
    def add_custom_scalars_multilinechart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """Say that it is not kept."""
        del tags, category
        not_kept(f"add_custom_scalars_multilinechart({title!r})", "the values are recorded, the layout is not.")

    @reports_unrecordable
    def add_custom_scalars_marginchart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """Say that it is not kept."""
        del tags, category
        not_kept(f"add_custom_scalars_marginchart({title!r})", "the values are recorded, the layout is not.")

    @reports_unrecordable
    def export_scalars_to_json(self, path: Any) -> None:
        """Say where the values are."""
        not_kept(f"export_scalars_to_json({str(path)!r})", "nothing is written. The run's metrics.jsonl has them.")


def _is_described(*given: Any) -> bool:
    """Whether one of a scalar's options is a text: tensorboardX's description stands where torch has two switches."""
    return any(isinstance(one, str) and one for one in given)

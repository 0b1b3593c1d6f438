"""What a writer records: scalars, distributions, and what is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import otel_ml
from otel_ml.compat.tensorboard import figures
from otel_ml.compat.tensorboard.bins import USUAL_BINS, counted
from otel_ml.compat.tensorboard.embedding import Embedding
from otel_ml.compat.tensorboard.hparams_session import session_of
from otel_ml.compat.tensorboard.mesh import Mesh
from otel_ml.compat.tensorboard.numbers import is_empty, sound
from otel_ml.compat.tensorboard.open_writers import WRITERS
from otel_ml.compat.tensorboard.precision_recall import precision_and_recall
from otel_ml.compat.tensorboard.run_writer import RunWriter
from otel_ml.compat.tracking.as_number import scalars
from otel_ml.compat.tracking.not_kept import not_kept, options_not_kept
from otel_ml.compat.tracking.pictures import film_strip, grid, in_range, ordered
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable
from otel_ml.wire.attributes import SESSIONS_PARAM

__all__ = ["SummaryWriter"]


class SummaryWriter(RunWriter):
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
        if WRITERS.sessions is None:
            WRITERS.sessions = []
            otel_ml.log_params(hparam_dict)
            self._run.summary(metric_dict)
            return
        session = called or f"session-{len(WRITERS.sessions) + 2}"
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

    # --- what is looked at ---------------------------------------------------------------------------------------

    @reports_unrecordable
    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Record a text, Markdown where it is rendered."""
        name, where = self._beside(tag, global_step, walltime)
        if text_string is None:
            raise TypeError("expected a text")
        otel_ml.log_text(name, text_string, **where)

    @reports_unrecordable
    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Record a picture; `dataformats` names its dimensions."""
        name, where = self._beside(tag, global_step, walltime)
        otel_ml.log_image(name, in_range(ordered(img_tensor, dataformats, "HWC")), **where)

    @reports_unrecordable
    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Record pictures as one, in rows and columns."""
        name, where = self._beside(tag, global_step, walltime)
        otel_ml.log_image(name, in_range(grid(ordered(img_tensor, dataformats, "NHWC"))), **where)

    @reports_unrecordable
    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float | str = 1,
        dataformats: Any = "CHW",
        labels: Any = None,
        **options: Any,
    ) -> None:
        """Record a picture without its boxes; by place tensorboardX's `dataformats` may stand where torch rescales."""
        del box_tensor, labels, options
        not_kept(f"add_image_with_boxes({tag!r})", "the picture is kept without the boxes.")
        order = rescale if isinstance(rescale, str) else dataformats
        self.add_image(tag, img_tensor, global_step, walltime, order)

    @reports_unrecordable
    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Record a matplotlib figure, or several as one picture, in rows; `close` closes them, as there."""
        name, where = self._beside(tag, global_step, walltime)
        several = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        if len(several) == 1:
            otel_ml.log_figure(name, several[0], **where)
        else:
            otel_ml.log_image(name, figures.as_one_picture(several), **where)
        if close:
            for one in several:
                figures.close(one)

    @reports_unrecordable
    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
        dataformats: str = "NTCHW",
    ) -> None:
        """Record up to 16 frames of the first film (film, time, channel, height, width) as one picture."""
        del fps
        name, where = self._beside(tag, global_step, walltime)
        frames = ordered(vid_tensor, dataformats, "NTHWC")[0]
        strip, kept = film_strip(frames)
        not_kept(f"add_video({tag!r})", f"{kept} of its {len(frames)} frames are kept as one picture.")
        otel_ml.log_image(name, in_range(strip), **where)

    @reports_unrecordable
    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44_100,
        walltime: float | None = None,
    ) -> None:
        """Record a sound: samples from -1 to 1, (1, samples), (samples,) or, of two channels, (samples, 2)."""
        name, where = self._beside(tag, global_step, walltime)
        otel_ml.log_audio(name, sound(snd_tensor), sample_rate, **where)

    @reports_unrecordable
    def add_graph(
        self,
        model: Any,
        input_to_model: Any = None,
        verbose: bool = False,
        use_strict_trace: bool = True,
        **options: Any,
    ) -> None:
        """Record how the model prints itself."""
        del input_to_model, verbose, use_strict_trace, options
        not_kept("add_graph()", "the model is kept as the text that it prints as.")
        name, where = self._beside("graph", None, None)
        otel_ml.log_text(name, f"```\n{model}\n```", **where)

    @reports_unrecordable
    def add_onnx_graph(self, prototxt: Any = None, onnx_model_file: Any = None) -> None:
        """Record the file."""
        otel_ml.log_artifact(prototxt or onnx_model_file, type="onnx")

    @reports_unrecordable
    def add_openvino_graph(self, xmlname: Any) -> None:
        """Record the file."""
        otel_ml.log_artifact(xmlname, type="openvino")

    @reports_unrecordable
    def add_embedding(
        self,
        mat: Any,
        metadata: Any = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Any = None,
    ) -> None:
        """Write points (n, dimensions), n labels and n pictures (NCHW) below `log_dir`, for TensorBoard's projector.

        The run has them as the artifact `tag`. Of tensors on a device it waits for the values.
        """
        if "://" in self.log_dir:
            not_kept(f"add_embedding(tag={tag!r})", f"{self.log_dir!r} is an address. Give log_dir= a folder.")
            return
        name, step = self._at(tag, global_step, None)
        folder = self._projector.write(Embedding.of(tag, step, mat, metadata, label_img, metadata_header))
        otel_ml.log_artifact(folder, name=name, type="embedding", step=step, axis=WRITERS.counts.axis_beside(name))

    @reports_unrecordable
    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Any = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Record meshes, or clouds of points, as PLY files in the artifact `tag`; `colors` are from 0 to 255.

        Each array is (meshes, points or triangles, 3). Of tensors on a device it waits for the values.
        """
        del config_dict
        not_kept(f"add_mesh({tag!r})", "it is kept as PLY files in an artifact, without camera and light.")
        name, where = self._beside(tag, global_step, walltime)
        with TemporaryDirectory(prefix="otel-ml-mesh-") as folder:
            for number, mesh in enumerate(Mesh.of_batch(vertices, colors, faces)):
                mesh.write(Path(folder, f"{number}.ply"))
            otel_ml.log_artifact(folder, name=name, type="mesh", **where)

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

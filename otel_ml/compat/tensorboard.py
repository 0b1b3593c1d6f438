"""TensorBoard's writer over otel_ml: `from otel_ml.compat.tensorboard import SummaryWriter`.

```python
from otel_ml.compat.tensorboard import SummaryWriter

with SummaryWriter("runs/digits") as writer:
    for step in range(100):
        writer.add_scalar("loss", 1 / (1 + step), step)
```

Every rank may make one: values of the ranks are averaged, one run comes out, in every exporter.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import otel_ml
from otel_ml._internal.lifecycle.runtime import RUNTIME
from otel_ml._internal.safe_repr import safe_repr
from otel_ml.compat.tracking.not_kept import is_given, not_kept
from otel_ml.compat.tracking.pictures import film_strip, grid, in_range, ordered
from otel_ml.compat.tracking.step_axes import StepCounts, whole
from otel_ml.never_raises import never_raises
from otel_ml.wire.attributes import SESSIONS_PARAM

__all__ = ["SummaryWriter"]

_NOTHING = 1e-7
"""What a ratio of nothing is divided by, as in TensorBoard."""


class _Writers:
    """The writers of this process that are open, and the run they began.

    Attributes:
        sessions: names of sets of hyper-parameters after the first one; None before there is one.
    """

    def __init__(self) -> None:
        self.open: list[SummaryWriter] = []
        self.sessions: list[str] | None = None
        self.counts = StepCounts()
        self._begun: otel_ml.Run | None = None
        self._run_id: str | None = None

    def enter(self, writer: SummaryWriter, run_id: str | None) -> tuple[otel_ml.Run, str]:
        """Begin the run, or join it; return it with the prefix of this writer's names."""
        run = otel_ml.init() if RUNTIME.is_chosen else self._begin(writer, run_id)
        if run.id != self._run_id:  # the program has ended the run of the writers before
            self._run_id, self.open, self.sessions = run.id, [], None
            self.counts.forget()
        first = self.open[0] if self.open else None
        self.open.append(writer)
        # Two folders are two curves of one name in TensorBoard; here the second one's names begin with its folder.
        return run, "" if first is None or first.run_name == writer.run_name else f"{writer.run_name}/"

    def _begin(self, writer: SummaryWriter, run_id: str | None) -> otel_ml.Run:
        self._begun = otel_ml.init(name=writer.run_name, id=run_id)
        return self._begun

    def leave(
        self, writer: SummaryWriter, kind: type[BaseException] | None = None, error: BaseException | None = None
    ) -> None:
        """Close a writer; the last one ends the run that writers began, as `error` says."""
        if writer in self.open:
            self.open.remove(writer)
        if not self.open and self._begun is not None:
            begun, self._begun = self._begun, None
            begun.__exit__(kind, error, None)


_WRITERS = _Writers()


class SummaryWriter:
    """What `torch.utils.tensorboard.SummaryWriter` takes. Without `global_step`, each tag counts its own calls."""

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
        **more: Any,
    ) -> None:
        del max_queue, flush_secs, filename_suffix
        given = more.pop("logdir", None) if log_dir is None else log_dir
        self.log_dir: str = str(given or _usual_folder(comment))
        # That of a folder by date would be another one in each rank.
        self.run_name: str = Path(self.log_dir).name if given else f"run{comment}"
        _make_folder(self.log_dir)
        for key in more:
            not_kept(f"SummaryWriter({key}=…)", "it means nothing to otel_ml.")
        if purge_step is not None:
            not_kept("SummaryWriter(purge_step=…)", "a step that is done again is told apart by its attempt.")
        self._is_open = False
        self._run_id: str | None = None
        self._usual_step: int | None = None
        self._enter()

    def _enter(self) -> None:
        self._run, self._prefix = _WRITERS.enter(self, self._run_id)
        self._run_id = self._run.id
        self._is_open = True

    def _at(self, tag: Any, global_step: Any) -> tuple[str, int]:
        """Return the name and the step of a call."""
        if not self._is_open:
            self._enter()  # as the original, which writes on in the same folder
        global_step = self._usual_step if global_step is None else global_step
        name = f"{self._prefix}{tag}"
        step = None if global_step is None else whole(global_step)
        if step is None:
            if global_step is not None:
                not_kept(f"global_step={safe_repr(global_step)} of {name!r}", "a step is a whole number from 0 on.")
            step = _WRITERS.counts.next(name)
        return name, step

    def _beside(self, tag: Any, global_step: Any) -> tuple[str, dict[str, Any]]:
        """Return the name, and step and axis of what is not a scalar."""
        name, step = self._at(tag, global_step)
        return name, {"step": step, "axis": _WRITERS.counts.axis_beside(name)}

    # --- scalars -------------------------------------------------------------------------------------------------

    @never_raises
    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
        display_name: str = "",
        summary_description: str = "",
    ) -> None:
        """Record a value; of one rank's values of a tag at a step the last counts."""
        del walltime, new_style, double_precision
        if is_given(display_name) or is_given(summary_description):
            not_kept(f"add_scalar({tag!r}, display_name=…)", "the value has its tag as its name.")
        name, step = self._at(tag, global_step)
        _WRITERS.counts.log({name: scalar_value}, step)

    @never_raises
    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Record several values as `main_tag/tag`."""
        del walltime
        name, step = self._at(main_tag, global_step)
        _WRITERS.counts.log({f"{name}/{tag}": value for tag, value in tag_scalar_dict.items()}, step)

    @never_raises
    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
        name: str | None = None,
    ) -> None:
        """Record hyper-parameters and final values: TensorBoard's own tab, parameters and summary elsewhere.

        Each call is a row of that tab. In other backends what a later call gives begins with its `run_name`.
        """
        del hparam_domain_discrete, global_step
        if not self._is_open:
            self._enter()
        if _WRITERS.sessions is None:
            _WRITERS.sessions = []
            otel_ml.log_params(hparam_dict)
            self._run.summary(metric_dict)
            return
        session = run_name or name or f"session-{len(_WRITERS.sessions) + 2}"
        _WRITERS.sessions = list(dict.fromkeys([*_WRITERS.sessions, session]))
        otel_ml.log_params({SESSIONS_PARAM: _WRITERS.sessions, session: dict(hparam_dict)})
        self._run.summary({f"{session}/{key}": value for key, value in metric_dict.items()})

    # --- distributions -------------------------------------------------------------------------------------------

    @never_raises
    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """Record a distribution, of 64 bins where `bins` is not a number."""
        del walltime, max_bins
        name, where = self._beside(tag, global_step)
        otel_ml.log_histogram(name, values, bins=bins if isinstance(bins, int) else 64, **where)

    @never_raises
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
        del max, num, sum, sum_squares, walltime
        name, where = self._beside(tag, global_step)
        limits = [float(limit) for limit in bucket_limits]
        lowest = float(min) if limits and float(min) < limits[0] else (limits[0] - 1 if limits else 0.0)
        otel_ml.log_histogram(name, bucket_counts, edges=[lowest, *limits], **where)

    @never_raises
    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Record how the elements of a tensor are spread."""
        self.add_histogram(tag, tensor, global_step, walltime=walltime)

    @never_raises
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
        import numpy as np

        truth, scores = np.asarray(labels, bool).ravel(), np.asarray(predictions, float).ravel()
        weight = np.ones(len(scores)) if weights is None else np.asarray(weights, float).ravel()
        places = np.floor(scores * (num_thresholds - 1))
        precision, recall = [], []
        for number in range(num_thresholds):
            taken = places >= number
            right = weight[taken & truth].sum()
            precision.append(right / max(weight[taken].sum(), _NOTHING))
            recall.append(right / max(weight[truth].sum(), _NOTHING))
        self._log_curve(tag, precision, recall, global_step)

    @never_raises
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
        """Record precision and recall that are computed already as a table."""
        del true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts
        del num_thresholds, weights, walltime
        self._log_curve(tag, list(precision), list(recall), global_step)

    def _log_curve(self, tag: str, precision: list[Any], recall: list[Any], global_step: int | None) -> None:
        last = max(len(precision) - 1, 1)
        rows = [
            [number / last, float(p), float(r)] for number, (p, r) in enumerate(zip(precision, recall, strict=True))
        ]
        name, where = self._beside(tag, global_step)
        otel_ml.log_table(name, rows, ["threshold", "precision", "recall"], **where)

    # --- what is looked at ---------------------------------------------------------------------------------------

    @never_raises
    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Record a text, Markdown where it is rendered."""
        del walltime
        name, where = self._beside(tag, global_step)
        otel_ml.log_text(name, text_string, **where)

    @never_raises
    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Record a picture; `dataformats` names its dimensions."""
        del walltime
        name, where = self._beside(tag, global_step)
        otel_ml.log_image(name, in_range(ordered(img_tensor, dataformats, "HWC")), **where)

    @never_raises
    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Record pictures as one, in rows and columns."""
        del walltime
        name, where = self._beside(tag, global_step)
        otel_ml.log_image(name, in_range(grid(ordered(img_tensor, dataformats, "NHWC"))), **where)

    @never_raises
    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: Any = None,
        **options: Any,
    ) -> None:
        """Record a picture without its boxes."""
        del box_tensor, walltime, rescale, labels, options
        not_kept(f"add_image_with_boxes({tag!r})", "the picture is kept without the boxes.")
        self.add_image(tag, img_tensor, global_step, dataformats=dataformats)

    @never_raises
    def add_figure(
        self,
        tag: str,
        figure: Any,
        global_step: int | None = None,
        close: bool = True,
        walltime: float | None = None,
    ) -> None:
        """Record a matplotlib figure, or several as one picture, in rows; `close` closes them, as there."""
        del walltime
        name, where = self._beside(tag, global_step)
        several = list(figure) if isinstance(figure, (list, tuple)) else [figure]
        if len(several) == 1:
            otel_ml.log_figure(name, several[0], **where)
        else:
            otel_ml.log_image(name, _together(several), **where)
        if close:
            for one in several:
                _close(one)

    @never_raises
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
        del fps, walltime
        name, where = self._beside(tag, global_step)
        frames = ordered(vid_tensor, dataformats, "NTHWC")[0]
        strip, kept = film_strip(frames)
        not_kept(f"add_video({tag!r})", f"{kept} of its {len(frames)} frames are kept as one picture.")
        otel_ml.log_image(name, in_range(strip), **where)

    @never_raises
    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44_100,
        walltime: float | None = None,
    ) -> None:
        """Record a sound: samples from -1 to 1, (1, samples) or (samples,)."""
        del walltime
        name, where = self._beside(tag, global_step)
        otel_ml.log_audio(name, snd_tensor.reshape(-1), sample_rate, **where)

    @never_raises
    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, **options: Any) -> None:
        """Record how the model prints itself."""
        del input_to_model, verbose, options
        not_kept("add_graph()", "the model is kept as the text that it prints as.")
        name, where = self._beside("graph", None)
        otel_ml.log_text(name, f"```\n{model}\n```", **where)

    @never_raises
    def add_onnx_graph(self, prototxt: Any = None, onnx_model_file: Any = None) -> None:
        """Record the file."""
        otel_ml.log_artifact(prototxt or onnx_model_file, type="onnx")

    @never_raises
    def add_openvino_graph(self, xmlname: Any) -> None:
        """Record the file."""
        otel_ml.log_artifact(xmlname, type="openvino")

    @never_raises
    def add_embedding(self, mat: Any, *more: Any, **options: Any) -> None:
        """Say that it is not kept."""
        del mat, more, options
        not_kept("add_embedding()", "nothing of it is recorded. Write the vectors to a file and use log_artifact().")

    @never_raises
    def add_mesh(self, tag: str, *more: Any, **options: Any) -> None:
        """Say that it is not kept."""
        del more, options
        not_kept(f"add_mesh({tag!r})", "nothing of it is recorded. Write it to a file and use log_artifact().")

    @never_raises
    def add_custom_scalars(self, layout: Any) -> None:
        """Say that it is not kept."""
        del layout
        not_kept("add_custom_scalars()", "the values are recorded, the layout is not.")

    @never_raises
    def add_custom_scalars_multilinechart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """Say that it is not kept."""
        del tags, category
        not_kept(f"add_custom_scalars_multilinechart({title!r})", "the values are recorded, the layout is not.")

    @never_raises
    def add_custom_scalars_marginchart(self, tags: Any, category: str = "default", title: str = "untitled") -> None:
        """Say that it is not kept."""
        del tags, category
        not_kept(f"add_custom_scalars_marginchart({title!r})", "the values are recorded, the layout is not.")

    @never_raises
    def export_scalars_to_json(self, path: Any) -> None:
        """Say where the values are."""
        not_kept(f"export_scalars_to_json({str(path)!r})", "nothing is written. The run's metrics.jsonl has them.")

    # --- life ----------------------------------------------------------------------------------------------------

    def get_logdir(self) -> str:
        """Return `log_dir`, a folder for files of the program; the run's own folder is printed when it begins."""
        return self.log_dir

    @contextmanager
    def use_metadata(self, *, global_step: int | None = None, walltime: float | None = None) -> Iterator[None]:
        """Record inside the block at `global_step`, where a call says none."""
        del walltime
        before, self._usual_step = self._usual_step, global_step
        try:
            yield
        finally:
            self._usual_step = before

    def flush(self) -> None:
        """Return at once: what is recorded is on disk within 100 ms and sent each second."""

    def close(self) -> None:
        """Close this writer; the last one ends the run."""
        self.__exit__(None, None, None)

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_open:
            self._is_open = False
            _WRITERS.leave(self, kind, error)


def _close(figure: Any) -> None:
    import matplotlib.pyplot as plt

    plt.close(figure)


def _usual_folder(comment: str) -> Path:
    now = datetime.now().strftime("%b%d_%H-%M-%S")  # noqa: DTZ005 (torch's name, which people look for by local time)
    return Path("runs") / f"{now}_{socket.gethostname()}{comment}"


@never_raises
def _make_folder(path: str) -> None:
    """Make the folder of a writer: programs put files of their own beside the event files."""
    if "://" not in path:
        Path(path).mkdir(parents=True, exist_ok=True)


def _together(figures: Sequence[Any]) -> Any:
    """Return figures of one size as one picture."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = []
    for figure in figures:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn.append(np.asarray(canvas.buffer_rgba())[..., :3])
    return grid(np.stack(drawn))

"""What a writer records to be looked at: texts, pictures, films, sounds, graphs, embeddings, meshes."""

from __future__ import annotations

from typing import Any

import otel_ml
from otel_ml._internal.events.temporary_folder import TemporaryFolder
from otel_ml.compat.tensorboard import figures
from otel_ml.compat.tensorboard.embedding import Embedding
from otel_ml.compat.tensorboard.mesh import Mesh
from otel_ml.compat.tensorboard.numbers import sound
from otel_ml.compat.tensorboard.open_writers import WRITERS
from otel_ml.compat.tensorboard.run_writer import RunWriter
from otel_ml.compat.tracking.not_kept import not_kept
from otel_ml.compat.tracking.pictures import film_strip, grid, in_range, ordered
from otel_ml.compat.tracking.unrecordable_arguments import reports_unrecordable

__all__ = ["MediaWriter"]


class MediaWriter(RunWriter):
    """The half of `SummaryWriter` that records no numbers."""

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
        if "://" in str(self.log_dir):
            not_kept(f"add_embedding(tag={tag!r})", f"{str(self.log_dir)!r} is an address. Give log_dir= a folder.")
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
        folder = TemporaryFolder("mesh")
        for number, mesh in enumerate(Mesh.of_batch(vertices, colors, faces)):
            mesh.write(folder.path / f"{number}.ply")
        otel_ml.log_artifact(folder.path, name=name, type="mesh", **where)

"""`wandb.data_types`: the classes of what can be logged."""

from __future__ import annotations

from otel_ml.compat.wandb.media import Audio, Classes, Histogram, Html, Image, Media, Video, WBValue, box3d
from otel_ml.compat.wandb.media_of_files import Bokeh, Graph, Molecule, Object3D, Plotly
from otel_ml.compat.wandb.table import EvalTable, Table

__all__ = [
    "Audio",
    "Bokeh",
    "Classes",
    "EvalTable",
    "Graph",
    "Histogram",
    "Html",
    "Image",
    "Media",
    "Molecule",
    "Object3D",
    "Plotly",
    "Table",
    "Video",
    "WBValue",
    "box3d",
]

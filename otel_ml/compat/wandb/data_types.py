"""`wandb.data_types`: the classes of what can be logged."""

from __future__ import annotations

from typing import Any

from otel_ml.compat.tracking.original_names import name_of_the_original
from otel_ml.compat.wandb.box import box3d
from otel_ml.compat.wandb.graph import Graph, Node
from otel_ml.compat.wandb.histogram import Histogram
from otel_ml.compat.wandb.joined_table import JoinedTable
from otel_ml.compat.wandb.media import Audio, Classes, Html, Image, Media, Video, WBValue
from otel_ml.compat.wandb.media_of_files import Bokeh, Molecule, Object3D, Plotly
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
    "JoinedTable",
    "Media",
    "Molecule",
    "Node",
    "Object3D",
    "Plotly",
    "Table",
    "Video",
    "WBValue",
    "box3d",
]


def __getattr__(name: str) -> Any:
    """Return W&B's own class: it is a type, and records nothing by itself."""
    return name_of_the_original("wandb.data_types", name, is_of_the_server=True)

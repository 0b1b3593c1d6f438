"""What a call of the original passes by name is accepted under that name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import pytest

from tests.unit.otel_ml.compat.signatures import SIGNATURES


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, callables in SIGNATURES.items() for name in callables]
)
def test_every_parameter_of_the_original_is_accepted(module: str, name: str) -> None:
    ours: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    parameters = inspect.signature(ours).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    assert takes_any or set(SIGNATURES[module][name]) <= parameters.keys()


def positional(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that may be given by their place; a method of a class that is not made yet has `self`."""
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    parameters = inspect.signature(function).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "self"]


def places() -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each callable that both have: the parameters that may be given by their place, theirs and ours."""
    import mlflow
    import tensorboardX
    import wandb
    from torch.utils.tensorboard import SummaryWriter

    from otel_ml.compat import mlflow as our_mlflow
    from otel_ml.compat import wandb as ours
    from otel_ml.compat.tensorboard import SummaryWriter as OurWriter

    pairs: list[tuple[Any, Any]] = [
        (wandb, ours),
        (wandb.Run, ours.Run),
        (wandb.Artifact, ours.Artifact),
        (SummaryWriter, OurWriter),
        (tensorboardX.SummaryWriter, OurWriter),
        (mlflow, our_mlflow),
    ]
    for theirs, our in pairs:
        for name in (name for name in dir(theirs) if not name.startswith("_") and name in dir(our)):
            one, other = getattr(theirs, name), getattr(our, name)
            if inspect.isroutine(one) and inspect.isroutine(other) and one is not other:
                takes_any = any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(other).parameters.values())
                called = f"{theirs.__module__.partition('.')[0]}." if inspect.isclass(theirs) else ""
                called += f"{our.__name__}.{name}"
                yield called, positional(one), positional(other) if not takes_any else positional(one)
    for writer in (SummaryWriter, tensorboardX.SummaryWriter):
        yield f"{writer.__module__.partition('.')[0]}.SummaryWriter()", positional(writer), positional(OurWriter)
    for name in DATA_TYPES:
        yield f"wandb.{name}", positional(getattr(wandb, name).__init__), positional(getattr(ours, name).__init__)
    for name in (name for name in dir(wandb.plot) if inspect.isfunction(getattr(wandb.plot, name))):
        if name != "visualize":  # what is kept of a chart is its table
            yield f"wandb.plot.{name}", positional(getattr(wandb.plot, name)), positional(getattr(ours.plot, name))


DATA_TYPES = (
    *("Audio", "Classes", "Graph", "Histogram", "Html", "Image", "JoinedTable", "Molecule", "Object3D", "Plotly"),
    *("Table", "Video"),
)

LAST_ONES_BY_NAME = {
    "otel_ml.compat.wandb.init": 17,  # of 25; the further ones are options of W&B's own
    "wandb.Table": 4,  # of 8; the further ones check what is put into it
    "wandb.plot": -1,  # `split_table`, a setting of W&B's page
}
"""Callables that take the parameters after so many by name alone."""


def by_place(name: str) -> int | None:
    """Return how many parameters of a callable may be given by their place; None where all may."""
    return LAST_ONES_BY_NAME.get(name, LAST_ONES_BY_NAME.get(name.rpartition(".")[0]))


OF_TWO_ORDERS = {
    "tensorboardX.SummaryWriter()",  # `logdir`, which torch calls `log_dir`
    "tensorboardX.SummaryWriter.add_hparams",
    "tensorboardX.SummaryWriter.add_image_with_boxes",
    "tensorboardX.SummaryWriter.add_onnx_graph",  # `onnx_model_file`, which torch calls `prototxt`
    "tensorboardX.SummaryWriter.add_scalar",
}
"""Where torch's writer has something else at a place than tensorboardX's: `test_tensorboardx.py` calls both ways."""


def test_what_a_call_of_the_original_passes_by_its_place_arrives_there() -> None:
    found = {name: (theirs[: by_place(name)], ours) for name, theirs, ours in places()}

    assert len(found) > 100
    others = {name: both for name, both in found.items() if both[1][: len(both[0])] != both[0]}
    assert {name: both for name, both in others.items() if name not in OF_TWO_ORDERS} == {}
    assert others.keys() >= OF_TWO_ORDERS

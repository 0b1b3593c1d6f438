"""Which launcher is recognized by what: each is asked with an environment that notes down what is read of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping

from otel_ml._internal.identity import trials
from otel_ml._internal.identity.ranks import DETECTORS, slurm

__all__ = ["launchers", "searches"]

IMPORTED = {
    "ray": "`RANK`, `WORLD_SIZE`, `LOCAL_RANK`; `ray.get_runtime_context()` and Ray Train's context of the worker",
    "dask": "`RANK`, `WORLD_SIZE`, `LOCAL_RANK`; the worker's name",
    "torch_group": "the default process group: rank and size",
}
"""What is asked where the package is imported; what is not in the environment."""


_WORDS = {"SUBMITIT_EXECUTOR": "local", "NODE_RANK": "0"}


class Noting(Mapping[str, str]):
    """An environment in which every variable is a number of its own; it knows which were read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def __getitem__(self, name: str) -> str:
        if name not in self.read:
            self.read.append(name)
        return _WORDS.get(name) or str(self.read.index(name) + 1)

    def __iter__(self) -> Iterator[str]:
        return iter(self.read)

    def __len__(self) -> int:
        return len(self.read)


def launchers() -> str:
    rows = (f"| {n} | {_first_line(one)} | {_read_by(one)} |" for n, one in enumerate(DETECTORS, 1))
    return "\n".join(["| | launcher | what is read |", "|---|---|---|", *rows])


def searches() -> str:
    rows = (f"| {n} | {_first_line(one)} |" for n, one in enumerate(trials.DETECTORS, 1))
    return "\n".join(["| | what says which trial it is |", "|---|---|", *rows])


def _first_line(detector: Callable[..., object]) -> str:
    return (inspect.getdoc(detector) or "").partition("\n")[0].rstrip(".")


def _read_by(detector: Callable[..., object]) -> str:
    noting = Noting()
    detector(noting)
    own = [name for name in noting.read if detector is slurm or not name.startswith("SLURM_")]
    variables = ", ".join([*(f"`{name}`" for name in own), *(["SLURM's"] if len(own) < len(noting.read) else [])])
    return "; ".join(part for part in (variables, IMPORTED.get(detector.__name__, "")) if part)

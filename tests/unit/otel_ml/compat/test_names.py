"""Each public name of an original is here, or it is said what is used instead: on the page and at the call."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from otel_ml.warn_once import forget_warnings
from tests.e2e.jobs import ROOT
from tests.originals.compared import verdicts
from tests.originals.originals import ORIGINALS, Original, names_of, said_by

by_key = pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: original.key)

SAYS_IT = [
    (original, name)
    for original in ORIGINALS
    for name in original.absent
    if "." not in name and name in said_by(original.module)
]


@by_key
def test_every_public_name_of_the_original_has_a_place(original: Original) -> None:
    found = verdicts(original)

    assert len(found) > 20
    assert [name for name, verdict in found.items() if verdict == "missing"] == []


@by_key
def test_what_is_said_of_a_name_is_of_one_that_the_original_has(original: Original) -> None:
    known = names_of(original.key)

    said = {**original.better, **original.said, **original.not_here}
    assert [name for name in said if name not in known] == []
    assert [name for name in original.absent if name not in known] == []


@pytest.mark.parametrize(("original", "name"), SAYS_IT, ids=lambda value: str(getattr(value, "key", value)))
def test_a_name_that_is_not_here_is_said_where_a_script_imports_it(
    original: Original, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    forget_warnings()

    with pytest.raises(ImportError):
        exec(f"from {original.module} import {name}", {})

    assert f"{original.module} has no {name}: {original.absent[name]}" in caplog.text
    assert not hasattr(importlib.import_module(original.module), name)


@by_key
def test_the_page_of_an_original_names_what_is_not_there(original: Original) -> None:
    pages = [ROOT / "docs" / "migrate" / page for page in (original.page, "compat.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)

    assert [name for name in (*original.absent, *original.said) if f"`{name}`" not in text] == []


def public(found: Any, names: Iterable[str] | None = None) -> set[str]:
    shown = dir(found) if names is None else names
    return {name for name in shown if not name.startswith("_") and not inspect.ismodule(getattr(found, name, None))}


def test_the_names_that_are_compared_are_those_of_the_packages_that_are_installed() -> None:
    import mlflow
    import tensorboardX
    import wandb
    from torch.utils import tensorboard

    of_wandb = public(wandb)
    for prefix, part in (("Run", wandb.Run), ("Artifact", wandb.Artifact), ("plot", wandb.plot)):
        of_wandb |= {f"{prefix}.{name}" for name in public(part)}
    assert of_wandb - {"plot"} <= set(names_of("wandb")) | {"annotations"}
    assert set(mlflow.__all__) <= set(names_of("mlflow"))
    for key, module in (("torch", tensorboard), ("tensorboardX", tensorboardX)):
        of_writers = {name for name in public(module) if inspect.isclass(getattr(module, name))} - {"SummaryWriter"}
        assert of_writers | {f"SummaryWriter.{name}" for name in public(module.SummaryWriter)} == set(names_of(key))

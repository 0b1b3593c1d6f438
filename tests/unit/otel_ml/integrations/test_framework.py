"""Which of Lightning's two packages is meant."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from lightning_utilities.core.rank_zero import rank_zero_only

import otel_ml
from otel_ml.integrations.lightning import framework


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of packages; none of Lightning's is imported."""
    names: set[str] = set()
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(framework, "find_spec", lambda name: "found" if name in names else None)
    return names


@pytest.mark.parametrize("imported", ["lightning.pytorch", "pytorch_lightning"])
def test_what_the_program_has_imported_is_meant(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], imported: str
) -> None:
    installed |= {"lightning", "pytorch_lightning"}
    monkeypatch.setitem(sys.modules, imported, ModuleType(imported))

    assert framework._package() == imported


@pytest.mark.parametrize(
    ("there", "meant"),
    [
        ({"lightning"}, "lightning.pytorch"),
        ({"pytorch_lightning"}, "pytorch_lightning"),
        ({"lightning", "pytorch_lightning"}, "lightning.pytorch"),
    ],
)
def test_before_that_what_is_installed(installed: set[str], there: set[str], meant: str) -> None:
    installed |= there

    assert framework._package() == meant


@pytest.mark.usefixtures("installed")
def test_without_either_it_is_said_what_to_install() -> None:
    with pytest.raises(ImportError, match="lightning") as error:
        framework._package()

    assert "otel_ml.integrations.lightning" in str(error.value)


def test_the_rank_is_the_strategys_and_0_before_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 3, raising=False)
    of_the_strategy = framework.global_rank()
    monkeypatch.setattr(rank_zero_only, "rank", None)
    unset = framework.global_rank()
    monkeypatch.delattr(rank_zero_only, "rank")

    assert (of_the_strategy, unset, framework.global_rank()) == (3, 0, 0)
    assert otel_ml.integrations.lightning.OtelMLLogger is not None

"""Which names are exporters."""

from __future__ import annotations

import pytest

from otel_ml_exporters.registry import BUILT_IN, is_registered, split_name


@pytest.mark.parametrize("name", [*BUILT_IN, "mlflow/remote", "jsonl/"])
def test_an_exporter_is_known_by_its_name_whatever_instance_is_meant(name: str) -> None:
    assert is_registered(name)


@pytest.mark.parametrize("name", ["nosuch", "nosuch/mlflow", "/mlflow", "", "MLFLOW"])
def test_what_stands_behind_the_slash_is_no_exporter(name: str) -> None:
    assert not is_registered(name)


def test_an_instance_may_have_slashes() -> None:
    assert (split_name("mlflow"), split_name("mlflow/a/b")) == (("mlflow", ""), ("mlflow", "a/b"))

"""Which names are exporters."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml.exceptions import MissingDependencyError
from otel_ml_exporters import registry
from otel_ml_exporters.registry import BUILT_IN, is_registered, split_name


@pytest.mark.parametrize("name", [*BUILT_IN, "mlflow/remote", "jsonl/"])
def test_an_exporter_is_known_by_its_name_whatever_instance_is_meant(name: str) -> None:
    assert is_registered(name)


@pytest.mark.parametrize("name", ["nosuch", "nosuch/mlflow", "/mlflow", "", "MLFLOW"])
def test_what_stands_behind_the_slash_is_no_exporter(name: str) -> None:
    assert not is_registered(name)


def test_an_instance_may_have_slashes() -> None:
    assert (split_name("mlflow"), split_name("mlflow/a/b")) == (("mlflow", ""), ("mlflow", "a/b"))


def test_a_package_that_a_plug_in_needs_is_named_and_not_the_plug_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plug_in_of_clicks.py").write_text("import no_such_driver\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "registered", lambda: {"clicks": "plug_in_of_clicks:Clicks"})

    with pytest.raises(MissingDependencyError, match=r"Exporter 'clicks' needs the package 'no_such_driver'\."):
        registry.exporter_class("clicks/a")

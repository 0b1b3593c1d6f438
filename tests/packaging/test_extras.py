"""Each extra alone: the wheel with it in an environment of its own, from an index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_ml_exporters.registry import BUILT_IN
from tests.docs.test_install_page import packages, project
from tests.packaging.clean_environment import environment_with, succeeded

pytestmark = [pytest.mark.full, pytest.mark.timeout(1900)]  # lightning brings torch, some gigabytes of it

EXTRAS: dict[str, list[str]] = project()["optional-dependencies"]

TRAIN = """
import otel_ml
with otel_ml.init("alone"):
    for step in otel_ml.steps(range(3)):
        otel_ml.log({"loss": 1.0})
"""


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"all"}))
def test_an_extra_alone_brings_what_it_names_and_a_run_goes_where_it_should(
    extra: str, wheel: Path, tmp_path: Path
) -> None:
    exporters = ["jsonl", *([extra] if extra in BUILT_IN and BUILT_IN[extra].package else [])]
    variables = {"OTEL_ML_DIR": str(tmp_path / "runs"), "OTEL_ML_EXPORTERS": ",".join(exporters)}
    variables |= {"WANDB_MODE": "offline", "HOME": str(tmp_path), "OTEL_ML_EXIT_WAIT": "60", "TIMEOUT_S": "120"}

    installed = environment_with(f"{wheel}[{extra}]", tmp_path, TIMEOUT_S="1800")
    versions = f"from importlib.metadata import version; [*map(version, {packages(EXTRAS[extra])})]"
    succeeded([installed / "python", "-c", versions], tmp_path)
    succeeded([installed / "python", "-c", TRAIN], tmp_path, **variables)
    [run] = map(json.loads, succeeded([installed / "otel-ml", "runs", "--json"], tmp_path, **variables).splitlines())

    assert (run["status"], run["steps"], run["lacking"]) == ("finished", 3, [])

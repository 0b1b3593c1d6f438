"""The page of the GPU says of which code its figures are, and where there is other code now."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

from tests.benchmarks.figures import Figure, Found
from tests.benchmarks.gpu.behind import BEHIND, DIAGNOSTICS, WORKER, behind, digest, parts_of
from tests.benchmarks.gpu.page import conditions, table_of_targets
from tests.benchmarks.gpu.targets import FIRST_SEEN, GPU_TARGETS
from tests.benchmarks.recorded import Part, Recorded
from tests.e2e.jobs import ROOT

NOW = {WORKER: "w1", DIAGNOSTICS: "d1"}
MACHINE = {"cores": "16", "GPU": "NVIDIA H100", "torch": "2.11"}
FIGURES = {"record": Figure(7.0, "µs"), "norms": Figure(900.0, "µs")}
SINCE = "not measured since commit abc1234"


def recorded(of: dict[str, str]) -> Recorded:
    return Recorded({"gpu": Part("2026-12-01", "full", 0.1, 200.0, MACHINE, Found(FIGURES), "abc1234", of)})


def row_of(table: str, what: str) -> str:
    [row] = [line for line in table.splitlines() if line.startswith(f"| {what}")]
    return row


def test_figures_of_the_code_that_is_there_stand_without_a_caveat() -> None:
    found = recorded(NOW)

    assert SINCE not in table_of_targets(found, NOW)
    assert "Not measured" not in conditions(found, NOW)
    for told in ("NVIDIA H100", "2.11", "abc1234", "2026-12-01"):
        assert told in conditions(found, NOW)


def test_a_row_whose_code_has_changed_says_so_and_the_others_do_not() -> None:
    found = recorded({**NOW, DIAGNOSTICS: "d0"})

    table = table_of_targets(found, NOW)
    assert row_of(table, "`Norms`").endswith(f"{SINCE} |")
    assert "900 µs" in row_of(table, "`Norms`")
    assert SINCE not in row_of(table, "`record()`")
    assert "**Not measured since commit abc1234**" in conditions(found, NOW)


def test_figures_that_do_not_say_of_which_code_they_are_are_of_none() -> None:
    assert table_of_targets(recorded({}), NOW).count(SINCE) == len(GPU_TARGETS)


def test_without_any_figures_each_row_says_since_when_and_none_is_called_met() -> None:
    table = table_of_targets(Recorded({}), NOW)

    assert table.count(f"not measured since commit {FIRST_SEEN}") == len(GPU_TARGETS)
    assert "met" not in [line.split("|")[-2].strip() for line in table.splitlines()]
    assert f"**Not measured since commit {FIRST_SEEN}**" in conditions(Recorded({}), NOW)


def test_of_which_code_figures_are_is_written_with_them_and_read_back(tmp_path: Path) -> None:
    recorded(NOW).write(tmp_path / "performance.json")

    found = Recorded.read(tmp_path / "performance.json").parts["gpu"]
    assert (found.commit, dict(found.behind)) == ("abc1234", NOW)


def test_the_page_says_so_as_long_as_it_is_so() -> None:
    page, part = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8"), Recorded.read().parts.get("gpu")

    is_other_code = part is None or dict(part.behind) != behind()
    assert ("**Not measured since commit " in page) == is_other_code


def test_a_digest_changes_with_a_file_and_with_its_name_and_not_with_what_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    source = tmp_path / "a" / "one.py"
    source.write_text("x = 1\n")
    found = [digest(tmp_path, ["a"])]
    (tmp_path / "a" / "one.so").write_bytes(b"compiled")
    assert digest(tmp_path, ["a"]) == found[0]

    source.write_text("x = 2\n")
    found.append(digest(tmp_path, ["a"]))
    source.rename(source.with_name("two.py"))
    found.append(digest(tmp_path, ["a"]))
    assert len(set(found)) == 3


def test_what_is_behind_a_figure_is_there() -> None:
    assert [folder for folders in BEHIND.values() for folder in folders if not (ROOT / folder).is_dir()] == []
    assert len({digest(ROOT, folders) for folders in BEHIND.values()}) == len(BEHIND)
    assert parts_of(["gpu/record", "gpu/norms.device"]) == {WORKER, DIAGNOSTICS}


@pytest.mark.parametrize("command", [[".ci/gpu"], ["-m", "tests.benchmarks", "--only", "gpu", "--write"]], ids=str)
def test_without_a_gpu_nothing_passes_and_it_says_why(command: list[str]) -> None:
    before = (ROOT / "docs" / "performance.json").read_bytes()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3
    assert "sees no CUDA device" in done.stdout + done.stderr
    assert (ROOT / "docs" / "performance.json").read_bytes() == before


def test_the_environment_of_make_gpu_has_all_that_a_run_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it lacked the service, no value of any test would arrive, and nobody saw: there was no GPU to run it on."""
    loader = SourceFileLoader("ci_gpu", str(ROOT / ".ci" / "gpu"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    gpu = module_from_spec(spec)
    loader.exec_module(gpu)
    monkeypatch.setattr(gpu, "ENVIRONMENT", tmp_path / "gpu")  # where the program makes it, there may be a user's
    python = gpu.created()

    program = "import otel_ml, otel_ml_exporters, torch; from otel_ml_service.cli import main"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

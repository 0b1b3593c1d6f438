"""The notebook runs from the first cell to the last, and leaves a run behind."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import otel_ml
from tests.e2e.jobs import the_run_in
from tests.examples.running import EXAMPLES
from tests.surroundings import SOURCES


@pytest.fixture
def kernel_finds_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", SOURCES)


@pytest.mark.usefixtures("kernel_finds_the_project")
def test_the_notebook_shows_its_run_and_reads_it_back(tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)

    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()

    start, loop, end = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any("text/html" in output.get("data", {}) for output in start.outputs)
    assert not [output for output in loop.outputs if output.output_type == "error"]
    assert "100 steps, loss 1.00 → 0.0071" in "".join(output.get("text", "") for output in end.outputs)
    assert otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))["loss"][0] == list(range(100))

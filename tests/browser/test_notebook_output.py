"""What a notebook shows of a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.browser.conftest import served
from tests.browser.job import HOSTILE
from tests.browser.page import PHONE, Page
from tests.e2e.jobs import ROOT, environment

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

PAGE = """<!doctype html><html><head><meta charset=utf-8><title>Notebook</title><link rel=icon href='data:,'>
<meta name=viewport content="width=device-width"></head><body>"""

CELL = """
import sys, otel_ml
run = otel_ml.init("pages", name=sys.argv[1], exporters="jsonl", params={sys.argv[1]: 1})
otel_ml.log({sys.argv[1]: 1.0}, step=0)
print(run._repr_html_())
otel_ml.shutdown()
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Pages with the HTML of the example's notebook, and of a run with a name that would be a program."""
    folder = tmp_path_factory.mktemp("notebook")
    (folder / "example.html").write_text(PAGE + "".join(html_of_the_example(folder)))
    command = [sys.executable, "-c", CELL, HOSTILE]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    (folder / "hostile.html").write_text(PAGE + done.stdout)
    with served(folder) as address:
        yield address


def html_of_the_example(folder: Path) -> Iterator[str]:
    notebook = nbformat.read(ROOT / "examples" / "notebook.ipynb", as_version=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            yield output.get("data", {}).get("text/html", "")


def test_a_run_is_shown_with_its_name_and_its_folder(page: Page, outputs: str) -> None:
    page.open(f"{outputs}example.html")

    page.shows("otel_ml run", "/notebook/")
    page.picture("notebook-run")
    assert page.errors == []


def test_a_name_that_would_be_a_program_is_shown_as_it_is_written(page: Page, outputs: str) -> None:
    page.open(f"{outputs}hostile.html", size=PHONE)

    page.shows(HOSTILE)
    page.picture("notebook-hostile-name")
    assert page.title == "Notebook"
    assert page.count("script") == 0
    assert page.errors == []

"""The browser, the run that is looked at, the viewers as `otel-ml open` starts them, and the built documentation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.page import Page, browser
from tests.e2e.jobs import ROOT, all_finished, environment, processes, the_run_in


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    """The page of one browser for all tests; `open` loads it anew."""
    chrome = browser()
    yield Page(chrome)
    chrome.quit()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that two processes recorded for TensorBoard and MLflow."""
    folder = tmp_path_factory.mktemp("pages")
    settings = {
        "OTEL_ML_EXPERIMENT_ID": "looked-at",
        "OTEL_ML_EXPORTERS": "jsonl,tensorboard,mlflow",
        "OTEL_ML_DIR": folder / "runs",
        "WORLD_SIZE": 2,
    }
    command = [sys.executable, "-m", "tests.browser.job", folder]
    ranks = [(command, environment(RANK=rank, LOCAL_RANK=rank, **settings)) for rank in range(2)]
    with processes(ranks, folder) as started:
        all_finished(started)
    return the_run_in(folder / "runs")


@contextmanager
def opened(run: Path, viewer: str) -> Iterator[str]:
    """Run `otel-ml open --with VIEWER` and yield the address that it says."""
    command = [sys.executable, "-m", "otel_ml_service", "open", str(run), "--with", viewer, "--no-browser"]
    with subprocess.Popen(command, env=environment(), cwd=run, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, f"otel-ml open ended with {process.wait()}"
            yield address
        finally:
            process.send_signal(signal.SIGINT)


@pytest.fixture(scope="session")
def tensorboard(run: Path) -> Iterator[str]:
    with opened(run, "tensorboard") as address:
        yield address


@pytest.fixture(scope="session")
def mlflow(run: Path) -> Iterator[str]:
    with opened(run, "mlflow") as address:
        yield address


class Files(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of `folder` on a free port, and yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=os.fspath(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, as `make check` builds it."""
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, timeout=280)
    return folder


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    with served(site) as found:
        yield found

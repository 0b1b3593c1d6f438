"""`otel-ml open RUN`: starts a viewer on the run, and says where it is."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import threading
import time
import urllib.request
import webbrowser
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click

from otel_ml._internal.transport.python_command import python_command
from otel_ml.exceptions import MissingDependencyError, OtelMLError, VersionError
from otel_ml.quantities import seconds
from otel_ml.redaction import redacted
from otel_ml.sqlite_address import database_of, sqlite_uri
from otel_ml_exporters.backends.wandb.names import identifier
from otel_ml_exporters.mlflow_run_search import RUN_ID, in_quotes
from otel_ml_service.cli.packages import installed_version
from otel_ml_service.cli.parameters import dir_option, run_argument
from otel_ml_service.cli.screen import screen
from otel_ml_service.cli.termination import put_away_when_terminated
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.stored_runs.deliveries import deliveries, delivering
from otel_ml_service.stored_runs.recorded_id import recorded_id
from otel_ml_service.stored_runs.run_folders import RunFolder, find

__all__ = ["Viewer", "ViewerError", "command", "mlflow_page", "viewers", "wandb_page"]

_START_TIMEOUT_S = 120.0
"""MLflow imports for more than a minute on a machine that trains on all cores."""

_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""MLflow's server would start a queue of jobs of its own, which a viewer has no use for."""


_LINES_SAID = 5
_PIPE_TIMEOUT_S = 2.0
"""Of a viewer that has ended a process of its own may still hold the pipe."""


class ViewerError(OtelMLError):
    """No viewer can show the run, or the viewer did not start."""

    slug = "viewer-failed"


@dataclass(frozen=True, slots=True)
class Viewer:
    """A program that shows runs in a browser.

    Attributes:
        data: what it reads; it can show the run when this exists.
        command: what is started, given the port.
        page: the address of the run, given that of the viewer.
    """

    name: str
    data: Path
    command: Callable[[int], Sequence[str]]
    page: Callable[[str], str]


def viewers(run: RunFolder) -> Mapping[str, Viewer]:
    """Return the viewers of a run, the preferred one first."""
    tensorboard, database = _event_files(run), _mlflow_database(run)
    found = (
        Viewer(
            "tensorboard",
            tensorboard,
            lambda port: ["tensorboard.main", "--logdir", str(tensorboard), "--host", "127.0.0.1", "--port", str(port)],
            lambda address: address,
        ),
        Viewer(
            "mlflow",
            database,
            # One worker for one person: each of the four there would be imports for seconds.
            lambda port: ["mlflow", "ui", "--backend-store-uri", sqlite_uri(database), "--host", "127.0.0.1",
                          "--port", str(port), "--workers", "1"],
            lambda address: mlflow_page(address, recorded_id(run)),
        ),
    )  # fmt: skip
    return {viewer.name: viewer for viewer in found}


def _mlflow_database(run: RunFolder) -> Path:
    """Return the database that the run's service was told, else the one of the folder of all runs."""
    folder, store = _mlflow_store(run)
    told = database_of(store)
    return run.path.parent.parent / "mlflow.db" if told is None else folder / told


def _mlflow_store(run: RunFolder) -> tuple[Path, str]:
    """Return where the run's service was started, and the address of MLflow that it was told, or ""."""
    with suppress(VersionError):
        served = ServedSettings.read(run.database.parent)
        if served is not None and "mlflow" in served.exporters:
            option = served.exporters["mlflow"].get("tracking_uri")
            return Path(served.folder), str(option or served.environ.get("MLFLOW_TRACKING_URI", ""))
    return Path(), ""


def _event_files(run: RunFolder) -> Path:
    """Return where TensorBoard finds what its exporter, or several instances of it, wrote."""
    found = [folder for folder in sorted(run.path.glob("tensorboard*")) if folder.is_dir()]
    if len(found) > 1:
        return run.path  # where each is a run of its own, called after its instance
    return found[0] if found else run.path / "tensorboard"


@click.command("open", epilog="Examples: otel-ml open · otel-ml open latest --with mlflow --no-browser")
@run_argument(required=False)
@dir_option
@click.option(
    "--with", "viewer_name", type=click.Choice(["tensorboard", "mlflow", "wandb"]), help="Instead of the first found."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port on 127.0.0.1.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--json", "as_json", is_flag=True, help="The address in a JSON object, for programs.")
def command(run: str, base: Path, viewer_name: str | None, port: int, no_browser: bool, as_json: bool) -> None:
    """Open RUN (the newest, if left out) in TensorBoard or MLflow, until Ctrl-C; or its page in W&B.

    The address is the first line on standard output.
    """
    folder = find(run, base)
    if _is_for_wandb(folder, viewer_name):
        _show("wandb", wandb_page(folder), folder, as_json=as_json, in_browser=not no_browser)
        return
    viewer = _chosen(folder, viewer_name)
    # Before the viewer is started, which imports for seconds until it finds out that its port is taken.
    port = _usable(port)
    with put_away_when_terminated(), _started(viewer, port) as started:
        _wait_until_it_answers(started, viewer, port)
        url = viewer.page(f"http://127.0.0.1:{port}/")
        screen().note(f"{viewer.name} shows {folder.experiment}/{folder.name}. Ctrl-C ends it.")
        _show(viewer.name, url, folder, as_json=as_json, in_browser=not no_browser)
        # Until Ctrl-C, or until the viewer ends by itself.
        started.process.wait()


class _LastLines:
    """The last lines of a pipe, which is read from the beginning: who writes stands still once it is full."""

    def __init__(self, pipe: IO[str]) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES_SAID)
        self._reading = threading.Thread(target=self._read, args=[pipe], daemon=True)
        self._reading.start()

    def at_the_end(self) -> list[str]:
        self._reading.join(_PIPE_TIMEOUT_S)
        return list(self._lines)

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            self._lines.extend(line.rstrip() for line in pipe if line.strip())


@dataclass(frozen=True, slots=True)
class _Started:
    process: subprocess.Popen[str]
    errors: _LastLines


@contextmanager
def _started(viewer: Viewer, port: int) -> Iterator[_Started]:
    process = subprocess.Popen(
        python_command(*viewer.command(port)),
        # A `mlflow.py` or `tensorboard.py` of the folder in which a person stands is not the viewer.
        # What the user has set wins over ours, as it comes last.
        env={**_QUIET, "PYTHONSAFEPATH": "1", **os.environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    try:
        yield _Started(process, _LastLines(process.stderr))
    finally:
        # Also where the browser could not be opened: a viewer that nobody ends would keep its port.
        process.terminate()
        process.wait()


def _show(viewer: str, url: str, run: RunFolder, *, as_json: bool, in_browser: bool) -> None:
    click.echo(json.dumps({"id": run.id, "viewer": viewer, "url": url}) if as_json else url)
    if in_browser:
        webbrowser.open(url)


def _is_for_wandb(run: RunFolder, name: str | None) -> bool:
    """Whether W&B is asked for, or is the only place where the run is."""
    return name == "wandb" or (
        name is None
        and _noted(run, "mode") is not None
        and not any(viewer.data.exists() for viewer in viewers(run).values())
    )


def _noted(run: RunFolder, name: str) -> str | None:
    """Return what the exporter wandb noted about the run: its `mode`, or the `url` of its page."""
    try:
        return (run.path / "wandb" / name).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def wandb_page(run: RunFolder) -> str:
    """Return the address of the run's page.

    Raises:
        ViewerError: there is none; says how there will be.
    """
    mode = _noted(run, "mode")
    if mode is None:
        raise ViewerError(_nowhere(run, "wandb"))
    url = _noted(run, "url")
    if url is not None:
        return url
    root = run.path.parent.parent / "wandb"
    # The name that W&B gives to what it keeps: `offline-run-<date>_<time>-<id>/run-<id>.wandb`.
    logs = sorted(root.glob(f"offline-run-*/run-{identifier(recorded_id(run))}.wandb"))
    folders = " ".join(shlex.quote(str(log.parent)) for log in logs) or f"{shlex.quote(str(root))}/offline-run-*"
    raise ViewerError(
        f"Run {run.id} was kept offline by W&B. Upload it, which prints its address: wandb login; wandb sync {folders}"
    )


def _nowhere(run: RunFolder, name: str | None) -> str:
    asked = {name} if name else {"tensorboard", "mlflow", "wandb"}
    coming = [one for one in delivering(deliveries(run) or ()) if one.partition("/")[0] in asked]
    if coming:
        return (
            f"Run {run.id} is on its way to {', '.join(coming)}: its service is still writing. Open it again when "
            f"that is done; how far it is: otel-ml show {run.id}"
        )
    if "mlflow" in asked and (elsewhere := _mlflow_store(run)[1]):
        return f"Run {run.id} is in MLflow at {redacted(elsewhere)!r}, not in a database of this host. Open it there."
    return (
        f"Run {run.id} was not written for {name or 'TensorBoard or MLflow'}. Write it there now: "
        f"otel-ml replay {shlex.quote(str(run.path))} --to {name or 'tensorboard'}; or look here: otel-ml show {run.id}"
    )


def _chosen(run: RunFolder, name: str | None) -> Viewer:
    known = viewers(run)
    with_data = [viewer for viewer in known.values() if viewer.data.exists() and name in {None, viewer.name}]
    if not with_data:
        raise ViewerError(_nowhere(run, name))
    # The first that can show it: a run may have been written for both where one is installed.
    for viewer in with_data:
        if installed_version(viewer.name) is not None:
            return viewer
    first = with_data[0].name
    raise MissingDependencyError(f"otel-ml open --with {first}", package=first, extra=first)


def _usable(port: int) -> int:
    """Return a port that a viewer can have: `port`, or a free one for 0. Nothing keeps it until the viewer listens."""
    with closing(socket.socket()) as probe:
        # As servers do: connections of an earlier viewer that are still ending do not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ViewerError(
                f"Port {port} on 127.0.0.1 cannot be used: {error.strerror}. Try another --port."
            ) from error
        return int(probe.getsockname()[1])


def _wait_until_it_answers(started: _Started, viewer: Viewer, port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        # Before the port is tried: a viewer that could not have the port ends, and who has it would answer.
        if (status := started.process.poll()) is not None:
            said = started.errors.at_the_end()
            raise ViewerError("\n".join([f"{viewer.name} ended at once with status {status}:", *said]))
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise ViewerError(
        f"{viewer.name} does not answer on port {port} after {seconds(_START_TIMEOUT_S)}. Try another --port."
    )


_TIMEOUT_S = 30.0


def mlflow_page(address: str, run_id: str) -> str:
    """Return the page of the run tagged with `run_id` in the MLflow at `address`; `address` where there is none.

    The view for model training is asked for: in the other one, which MLflow 3.17 begins with, the way back from a run
    leads to traces and evaluations, and not to the experiment's other runs.
    """
    # A filter of MLflow can hold no text with both kinds of quotes: then the page that it begins with is shown.
    if (quoted := in_quotes(run_id)) is None:
        return address
    try:
        experiments = _ask(address, "experiments/search", {"max_results": 1000}).get("experiments", [])
        query = {
            "experiment_ids": [experiment["experiment_id"] for experiment in experiments],
            "filter": f"tags.`{RUN_ID}` = {quoted}",
            "max_results": 1,
        }
        [found] = _ask(address, "runs/search", query).get("runs", [])
    except (OSError, ValueError):  # a refusal is an OSError; without such a run nothing is unpacked
        return address
    info = found["info"]
    return f"{address}#/experiments/{info['experiment_id']}/runs/{info['run_id']}?workflowType=machine_learning"


def _ask(address: str, what: str, query: object) -> Any:
    request = urllib.request.Request(
        f"{address}api/2.0/mlflow/{what}", json.dumps(query).encode(), {"Content-Type": "application/json"}
    )
    # Not through a proxy of the environment: it is the viewer on this host.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)

"""`otel-ml open`: a real viewer on a run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from otel_ml_service.cli.open_command import viewers
from otel_ml_service.delivery.exporter_progress import PipelineStatus
from otel_ml_service.live_runs.delivery_file import DeliveryFile
from otel_ml_service.live_runs.served_settings import ServedSettings
from otel_ml_service.storage.outbox import Outbox
from otel_ml_service.stored_runs.run_folders import find
from tests.otlp_server import eventually
from tests.recorded_run import digits_records, write_run
from tests.unit.otel_ml_service.cli.program import PROGRAM, environment, otel_ml

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("exporters", "shown"),
    [
        (["tensorboard"], {"."}),
        (["tensorboard/a"], {"."}),
        (["tensorboard/a", "tensorboard/b"], {"tensorboard-a", "tensorboard-b"}),
    ],
)
def test_open_starts_tensorboard_on_the_run_and_says_where(
    tmp_path: Path, exporters: list[str], shown: set[str]
) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=exporters)
    command = [*PROGRAM, "open", "01abc", "--no-browser"]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        found = eventually(lambda: _json(f"{url}data/plugins_listing"), within=60)
        eventually(lambda: shown <= set(_json(f"{url}data/runs") or ()), within=60)  # it finds one after the other
        process.send_signal(signal.SIGINT)

    assert "scalars" in found
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_open_ends_its_viewer_too(tmp_path: Path, number: signal.Signals) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["tensorboard"])
    command = [*PROGRAM, "open", "01abc", "--no-browser"]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        process.send_signal(number)

    assert process.returncode == 128 + number
    with closing(socket.socket()) as probe:
        assert probe.connect_ex((str(address.hostname), address.port or 0)) != 0


def test_open_goes_on_when_its_terminal_closes_where_nohup_started_it(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["tensorboard"])
    command = ["nohup", *PROGRAM, "open", "01abc", "--no-browser"]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.send_signal(signal.SIGHUP)
        found = eventually(lambda: _json(f"{url}data/plugins_listing"), within=60)
        process.send_signal(signal.SIGTERM)

    assert "scalars" in found
    assert process.returncode == 128 + signal.SIGTERM


_LISTENS = """
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            server.accept()[0].close()
"""
_ENDS = """
    sys.stderr.write("no such file: events\\n")
    sys.exit(3)
"""


def test_open_waits_for_a_viewer_that_writes_much_before_it_listens(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["tensorboard"])
    command = [*PROGRAM, "open", "01abc", "--no-browser"]
    variables = environment(tmp_path, PYTHONPATH=_path_with_viewer(tmp_path, _LISTENS))
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        process.send_signal(signal.SIGINT)

    assert url.startswith("http://127.0.0.1:")
    assert process.returncode == 130


def test_open_says_how_a_viewer_ended_that_has_written_much(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["tensorboard"])

    done = otel_ml(tmp_path, "open", "01abc", "--no-browser", PYTHONPATH=_path_with_viewer(tmp_path, _ENDS))

    assert done.returncode == 1
    assert "tensorboard ended at once with status 3:" in done.stderr
    assert "no such file: events" in done.stderr


def test_open_does_not_take_who_has_the_port_for_its_viewer(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["tensorboard"])
    path = _path_with_viewer(tmp_path, _LISTENS)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = otel_ml(tmp_path, "open", "01abc", "--no-browser", "--port", str(port), PYTHONPATH=path)

    assert done.returncode == 1
    assert done.stdout == ""
    assert f"Port {port} on 127.0.0.1 cannot be used: Address already in use. Try another --port." in done.stderr


def _path_with_viewer(base: Path, then: str) -> str:
    """Return a PYTHONPATH on which `tensorboard` is a viewer that writes more than a pipe holds, and does `then`."""
    package = base / "viewer" / "tensorboard"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "main.py").write_text(
        f"""
import socket, sys

if __name__ == "__main__":
    port = int(sys.argv[sys.argv.index("--port") + 1])
    sys.stderr.write("reading events\\n" * 20_000)
{then}"""
    )
    return os.pathsep.join([str(package.parent), environment(base)["PYTHONPATH"]])


def _json(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return json.load(answer)
    except ConnectionResetError:  # TensorBoard resets connections while it starts
        return None


def test_open_says_how_to_get_there_where_the_run_is_in_no_viewer(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))

    done = otel_ml(tmp_path, "open", "01abc", "--no-browser")

    assert done.returncode == 1
    assert f"otel-ml replay {run.path} --to tensorboard" in done.stderr


@pytest.mark.parametrize("options", [["--with", "mlflow"], []])
def test_open_of_a_run_that_is_on_its_way_there_does_not_say_to_write_it_again(
    tmp_path: Path, options: list[str]
) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    with closing(Outbox(run.database)) as outbox:
        DeliveryFile(run.database.parent).keep(outbox.last_seq, {"mlflow": PipelineStatus("starting", 0)})
        done = otel_ml(tmp_path, "open", "01abc", "--no-browser", *options)

    assert done.returncode == 1
    assert "Run 01abc is on its way to mlflow" in done.stderr
    assert "otel-ml show 01abc" in done.stderr
    assert "replay" not in done.stderr


def test_open_says_how_a_run_that_w_and_b_kept_offline_is_uploaded(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["wandb"])

    done = otel_ml(tmp_path, "open", "01abc", "--no-browser")

    [log] = tmp_path.glob("wandb/offline-run-*/run-01abc.wandb")
    assert done.returncode == 1
    assert f"wandb sync {log.parent}" in done.stderr


def test_open_finds_the_page_of_a_run_in_w_and_b(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "mode").write_text("online")
    (run.path / "wandb" / "url").write_text("https://wandb.example/team/digits/runs/01abc")

    done = otel_ml(tmp_path, "open", "01abc", "--no-browser")

    assert done.returncode == 0, done.stderr
    assert done.stdout == "https://wandb.example/team/digits/runs/01abc\n"


def test_open_says_as_json_where_and_in_what(tmp_path: Path) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    (run.path / "wandb").mkdir()
    (run.path / "wandb" / "mode").write_text("online")
    (run.path / "wandb" / "url").write_text("https://wandb.example/team/digits/runs/01abc")

    done = otel_ml(tmp_path, "open", "01abc", "--no-browser", "--json")

    assert json.loads(done.stdout) == {
        "id": "01abc", "viewer": "wandb", "url": "https://wandb.example/team/digits/runs/01abc"
    }  # fmt: skip


def test_open_says_as_json_where_a_viewer_is_as_soon_as_it_answers(tmp_path: Path) -> None:
    write_run(tmp_path, "01abc", digits_records(steps=3), exporters=["tensorboard"])
    command = [*PROGRAM, "open", "01abc", "--no-browser", "--json"]
    with subprocess.Popen(command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)

    assert (said["id"], said["viewer"], urlsplit(said["url"]).hostname) == ("01abc", "tensorboard", "127.0.0.1")
    assert process.returncode == 130


@pytest.mark.parametrize("options", [{}, {"tracking_uri": "http://tracking.example:5000"}])
def test_open_of_a_run_in_an_mlflow_elsewhere_says_where_that_is(tmp_path: Path, options: dict[str, str]) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    environ = {"MLFLOW_TRACKING_URI": "databricks" if options else "http://tracking.example:5000"}
    ServedSettings({"mlflow": options}, environ, (), str(tmp_path), "", is_of_serve=False).keep(run.database.parent)

    done = otel_ml(tmp_path, "open", "01abc", "--no-browser", "--with", "mlflow")

    assert done.returncode == 1
    assert "Run 01abc is in MLflow at 'http://tracking.example:5000'" in done.stderr
    assert "replay" not in done.stderr


@pytest.mark.parametrize("uri", ["sqlite:///mine/mlflow.db", "sqlite:////{folder}/mine/mlflow.db"])
def test_open_shows_the_database_that_the_runs_service_was_told(tmp_path: Path, uri: str) -> None:
    run = write_run(tmp_path, "01abc", digits_records(steps=3))
    environ = {"MLFLOW_TRACKING_URI": uri.format(folder=str(tmp_path).lstrip("/"))}
    ServedSettings({"mlflow": {}}, environ, (), str(tmp_path), "", is_of_serve=False).keep(run.database.parent)

    found = viewers(find("01abc", tmp_path))["mlflow"].data

    assert found.resolve() == tmp_path / "mine" / "mlflow.db"

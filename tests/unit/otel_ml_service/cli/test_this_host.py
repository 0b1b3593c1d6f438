"""What `otel-ml doctor` says of this host: packages, settings, the folder of runs, ports."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from otel_ml_service.cli.checks import Check, folder_checks, port_checks, setting_checks, this_host
from tests.ports import free_port
from tests.recorded_run import digits_records, write_run


@pytest.fixture(autouse=True)
def _none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def versions(monkeypatch: pytest.MonkeyPatch, **known: str) -> list[Check]:
    named = {name.replace("_", "-"): version for name, version in known.items()}
    monkeypatch.setattr(this_host, "installed_version", named.get)
    return list(this_host.package_checks())


def test_packages_that_are_there_are_named_with_their_version_and_others_with_how_to_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = versions(monkeypatch, otel_ml="1.2", opentelemetry_sdk="1.45.2", mlflow="3.1.0")

    assert found[0].found.startswith("otel-ml 1.2, Python 3.")
    assert found[2] == Check("ok", "opentelemetry-sdk 1.45.2")
    assert Check("ok", "mlflow 3.1.0") in found
    assert Check("note", "wandb is not installed", "pip install 'otel-ml[wandb]'") in found
    assert {check.state for check in found} == {"ok", "note"}
    assert versions(monkeypatch)[0].found.startswith("otel-ml (not installed: running from its sources), ")


@pytest.mark.parametrize("version", ["1.45.0", "1.45.1"])
def test_releases_that_leak_or_cannot_work_are_told(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    found = versions(monkeypatch, opentelemetry_sdk=version, mlflow="3.18.0")

    assert (found[2].state, found[2].found.split(" keeps")[0]) == ("note", f"opentelemetry-sdk {version}")
    [broken] = [check for check in found if check.state == "wrong"]
    assert broken.found.startswith("mlflow 3.18.0 does not work: its parts")
    assert broken.do == "pip install 'mlflow!=3.18.0'"


def test_settings_that_can_be_read_are_one_line() -> None:
    assert list(setting_checks()) == [Check("ok", "every variable can be read")]


def test_what_is_wrong_with_settings_is_told_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ML_FLUSH_INTERVAL", "often")
    monkeypatch.setenv("OTEL_ML_EXPORTER", "jsonl")
    monkeypatch.setenv("OTEL_ML_ENTIRELY_ANOTHER_THING", "1")

    first, *others = sorted(setting_checks(), key=lambda check: "often" not in check.found)

    assert (first.state, first.do) == ("wrong", "otel-ml env lists all settings; until then the default is in effect")
    assert sorted(others, key=lambda check: check.state) == [
        Check("note", "OTEL_ML_ENTIRELY_ANOTHER_THING is not a setting of otel_ml: a plug-in may read it",
              "else unset OTEL_ML_ENTIRELY_ANOTHER_THING"),
        Check("wrong", "OTEL_ML_EXPORTER is not a setting",
              "set OTEL_ML_EXPORTERS, if that is meant, and unset OTEL_ML_EXPORTER"),
    ]  # fmt: skip


@pytest.mark.parametrize(("asked", "wrong"), [("none", 0), ("jsonl", 0), ("jsonl,jsonk", 1)])
def test_exporters_that_are_asked_for_can_be_had(monkeypatch: pytest.MonkeyPatch, asked: str, wrong: int) -> None:
    monkeypatch.setenv("OTEL_ML_EXPORTERS", asked)

    first, *others = setting_checks()

    assert first.state == "ok"
    assert [check.do for check in others] == ["otel-ml exporters lists them"] * wrong


def test_the_folder_of_runs_has_room_and_says_how_much_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("01abc", "02abc"):
        write_run(tmp_path, run_id, digits_records(steps=2))

    room, taken = folder_checks(tmp_path)
    monkeypatch.setenv("OTEL_ML_DIR_MAX", str(2**20))
    (tmp_path / "digits" / "01abc" / "large").write_bytes(b"x" * 2**21)
    _, more = folder_checks(tmp_path)

    assert (room.state, room.found.startswith(f"{str(tmp_path)!r} can be written, ")) == ("ok", True)
    assert (taken.state, taken.found.startswith("2 runs take ")) == ("ok", True)
    assert taken.found.endswith("(OTEL_ML_DIR_MAX)")
    assert (more.state, more.do) == ("wrong", "otel-ml gc removes the oldest")


def test_a_folder_that_will_be_made_is_judged_by_the_one_above_it(tmp_path: Path) -> None:
    room, taken = folder_checks(tmp_path / "not" / "yet")

    assert (room.state, taken.state) == ("ok", "ok")
    assert taken.found.startswith("0 runs take 0 B of ")
    assert not (tmp_path / "not").exists()


def test_ports_that_are_free_are_told_and_how_many_may_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    free, port = free_port(), free_port()
    monkeypatch.setenv("OTEL_ML_LISTEN_GRPC", f"127.0.0.1:{free}")
    monkeypatch.setenv("OTEL_ML_LISTEN_HTTP", f"127.0.0.1:{port}")
    before = list(port_checks())
    assert before[0] == Check("ok", f"127.0.0.1:{free} is free (OTEL_ML_LISTEN_GRPC)")
    assert before[1] == Check("ok", f"127.0.0.1:{port} is free (OTEL_ML_LISTEN_HTTP)")
    assert before[2].found.endswith(" connections at once, one a rank or Collector")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not this_host._is_free("127.0.0.1", taken.getsockname()[1])
    assert this_host._is_free("127.0.0.1", free)


@pytest.mark.parametrize(
    ("files", "connections", "state"), [(10**6, "", "ok"), (100, "100", "note"), (-5, "0", "note")]
)
def test_fewer_connections_than_a_service_takes_at_most_are_told(
    monkeypatch: pytest.MonkeyPatch, files: int, connections: str, state: str
) -> None:
    monkeypatch.setattr(this_host, "most_files_of_a_service", lambda: files)

    check = this_host._connections_check()

    most = connections or f"{this_host.MOST_CONNECTIONS:,}"
    assert check.found == f"a service that is started here takes {most} connections at once, one a rank or Collector"
    assert check.state == state
    assert bool(check.do) is (state == "note")

"""Tokens that are exchanged while a service and its jobs run: nobody is restarted, and nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import otel_ml
from tests.integration.conftest import Bench
from tests.integration.worker_process import environment, start
from tests.otlp_server import eventually

PROGRAM = """
    import otel_ml, sys
    with otel_ml.init("rotated", id="one"):
        for step, line in enumerate(sys.stdin):
            otel_ml.log({"x": float(step)}, step=step)
            print(otel_ml.flush(float(line)), flush=True)
"""


def exchange(file: Path, text: str) -> None:
    """Put another file in its place, as Kubernetes does with what it mounts."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_a_service_takes_the_tokens_that_its_file_has_now(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    exchange(file, "old\n")
    service = bench.service(token_file=file, tokens=("fixed",))

    def taken() -> dict[str, bool]:
        names = ("old", "new", "fixed", "", "none")
        return {name: bench.sender(service, name).request("GET", "/healthz").status == 200 for name in names}

    before = taken()
    exchange(file, "new\nold\n")
    meanwhile = taken()
    exchange(file, "new\n")
    after = taken()

    assert before == {"old": True, "new": False, "fixed": True, "": False, "none": False}
    assert meanwhile == {"old": True, "new": True, "fixed": True, "": False, "none": False}
    assert after == {"old": False, "new": True, "fixed": True, "": False, "none": False}


@pytest.mark.parametrize("damage", ["gone", "empty", "binary"])
def test_while_the_file_cannot_be_read_the_tokens_stay_in_force(
    bench: Bench, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "tokens"
    exchange(file, "secret-one\n")
    service = bench.service(token_file=file)
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(b"" if damage == "empty" else b"\xff\x00\n")

    statuses = [
        bench.sender(service, token).request("GET", "/healthz").status for token in ("secret-one", "", "\xff\xfe")
    ]

    assert statuses == [200, 401, 401]
    assert caplog.text.count("the tokens it had stay in force") == 1
    assert "secret-one" not in caplog.text


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_job_goes_on_with_the_token_that_its_file_has_now(bench: Bench, tmp_path: Path, protocol: str) -> None:
    of_the_service, of_the_job = tmp_path / "tokens", tmp_path / "token"
    exchange(of_the_service, "old\n")
    exchange(of_the_job, "old\n")
    service = bench.service(token_file=of_the_service, grpc=("127.0.0.1", 0), exporters={"jsonl": {}})
    address = service.endpoint if protocol != "grpc" else f"http://127.0.0.1:{(service.grpc_address or ('', 0))[1]}"
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": address,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_ML_TOKEN_FILE": os.fspath(of_the_job),
        "OTEL_ML_TOKEN": "ignored",
    }
    process = start(PROGRAM, environment(tmp_path, variables), tmp_path)
    assert process.stdin is not None
    assert process.stdout is not None

    def step(seconds: float) -> str:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    first = step(30.0)
    exchange(of_the_service, "new\n")
    refused = step(1.0)
    exchange(of_the_job, "new\n")
    later = step(60.0)
    _, errors = process.communicate(timeout=60)

    assert (first, refused, later) == ("True", "False", "True")
    assert "does not take the credentials" in errors
    eventually((bench.folder / "rotated" / "one" / "metrics.jsonl").exists)
    eventually(lambda: otel_ml.read(bench.folder / "rotated" / "one").get("x") == ([0, 1, 2], [0.0, 1.0, 2.0]))

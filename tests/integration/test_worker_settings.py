"""Settings that are wrong, misspelled or unused are said by the worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer


def test_wrong_settings_are_all_named_at_init(tmp_path: Path) -> None:
    program = """
        import otel_ml
        try:
            otel_ml.init(rank=-1)
        except otel_ml.ConfigError as error:
            print(len(error.problems))
        else:
            raise SystemExit("no error")
    """
    wrong = {"OTEL_ML_MODE": "autoo", "OTEL_ML_FLUSH_INTERVAL": "1s"}

    output, _ = run(program, environment(tmp_path, wrong), tmp_path)

    assert output == "3\n"


def test_without_init_wrong_settings_are_said_and_training_goes_on(server: OtlpServer, tmp_path: Path) -> None:
    environ = environment(tmp_path, variables(server, OTEL_ML_FLUSH_INTERVAL="1s"))

    _, errors = run("import otel_ml; otel_ml.log({'x': 1}, step=0)", environ, tmp_path)

    assert len(server.points("x")) == 1
    assert "OTEL_ML_FLUSH_INTERVAL: expected a whole number of at least 10, got '1s'" in errors


def test_strict_raises_where_a_value_is_wrong(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        otel_ml.init("exp")
        try:
            otel_ml.log({"x": object()}, step=0)
        except otel_ml.OtelMLError:
            print("raised")
    """

    output, _ = run(program, environment(tmp_path, variables(server, OTEL_ML_STRICT="true")), tmp_path)

    assert output == "raised\n"


def test_exporters_named_where_the_service_decides_are_said_to_be_unused(server: OtlpServer, tmp_path: Path) -> None:
    """docs/protocol.md §3.2: in remote mode the service decides on exporters; the argument is reported as unused."""
    program = "import otel_ml; otel_ml.init('exp', exporters='wandb'); otel_ml.log({'x': 1}, step=0)"

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert len(server.points("x")) == 1
    assert f"init(exporters='wandb') is not used: the service at {server.url}" in errors
    assert "(otel-ml explain exporters-unused)" in errors


@pytest.mark.parametrize("begin", ["otel_ml.init('exp'); ", ""])
def test_a_misspelled_variable_is_said_once_for_the_job_with_the_one_that_is_meant(
    server: OtlpServer, tmp_path: Path, begin: str
) -> None:
    program = f"""
        import multiprocessing, otel_ml
        def work():
            otel_ml.log({{"x": 2}}, step=1)
        if __name__ == "__main__":
            {begin}otel_ml.log({{"x": 1}}, step=0)
            child = multiprocessing.get_context("spawn").Process(target=work)
            child.start()
            child.join()
    """
    environ = environment(tmp_path, variables(server, OTEL_ML_EXPORTER="mlflow", OTEL_ML_ACME_KEY="x"))

    _, errors = run(program, environ, tmp_path)

    assert len(server.points("x")) == 2
    assert errors.count("OTEL_ML_EXPORTER: there is no such setting. Did you mean OTEL_ML_EXPORTERS?") == 1
    assert "ACME" not in errors


def test_a_misspelled_variable_is_not_said_where_nobody_asks_for_a_run(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPORTER": "mlflow"})
    del environ["OTEL_ML_DIR"]

    _, errors = run("import otel_ml; otel_ml.log({'x': 1}, step=0)", environ, tmp_path)

    assert errors == ""
    assert not list(tmp_path.glob("otel-ml-runs"))


@pytest.mark.parametrize(("interval", "is_said"), [("1000", False), ("3000", True)])
def test_who_sends_more_rarely_than_a_heartbeat_is_due_is_told(tmp_path: Path, interval: str, is_said: bool) -> None:
    program = (
        'import otel_ml\nwith otel_ml.init("exp", id="one", exporters="jsonl"):\n    otel_ml.log({"x": 1.0}, step=0)'
    )

    _, errors = run(program, environment(tmp_path, {"OTEL_ML_FLUSH_INTERVAL": interval}), tmp_path)

    assert ("OTEL_ML_FLUSH_INTERVAL=3000: this process says that it lives every 3 s" in errors) == is_said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"RANK": "5", "WORLD_SIZE": "2"}, "RANK='5': expected a whole number from 0 to 1, as WORLD_SIZE='2' says."),
        ({"RANK": "abc", "WORLD_SIZE": "2"}, "RANK='abc': expected a whole number from 0 to 1"),
        ({"RANK": "1", "WORLD_SIZE": ""}, "RANK='1': expected WORLD_SIZE, too, got ''."),
        ({"RANK": "0"}, ""),
        ({"WORLD_SIZE": "8"}, ""),
        ({"RANK": "5", "WORLD_SIZE": "2", "OTEL_ML_RANK": "0", "OTEL_ML_WORLD_SIZE": "2"}, ""),
    ],
)
def test_a_rank_in_the_environment_that_cannot_be_one_is_said_and_not_used(
    server: OtlpServer, tmp_path: Path, given: dict[str, str], said: str
) -> None:
    program = 'import otel_ml\nwith otel_ml.init("exp"):\n    otel_ml.log({"x": 1.0}, step=0)'

    _, errors = run(program, environment(tmp_path, {**variables(server), **given}), tmp_path)

    [point] = server.points("x")
    assert point.resource.get("ml.rank", 0) == 0
    assert (said in errors) if said else ("RANK" not in errors), errors
    assert ("(otel-ml explain wrong-setting)" in errors) == bool(said)

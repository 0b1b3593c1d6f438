"""`otel-ml recover` of what jobs left whose service was elsewhere, or in another boot, terminal or folder."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.integration.recovering import KILLED, kill_with_its_service, otel_ml_command, serving, written
from tests.integration.worker_process import environment, run, start
from tests.otlp_server import eventually, otlp_server
from tests.ports import free_port

pytestmark = pytest.mark.long


def test_recover_in_another_terminal_than_the_jobs_brings_what_its_ranks_left(tmp_path: Path) -> None:
    told = {"OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000", "OTEL_ML_FLUSH_INTERVAL": "60000"}
    kill_with_its_service(tmp_path, told)
    (tmp_path / "elsewhere").mkdir()
    there = {**environment(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "elsewhere")}

    listed = otel_ml_command(there, "recover", "--dry-run")
    done = otel_ml_command(there, "recover", "--timeout", "60")

    assert "exp/one: not finished, 1 spool of workers" in listed.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 values of 1 spool and the journal delivered to jsonl, 0 lost" in done.stdout
    assert not list(tmp_path.glob("run/*/*/spool"))


def test_what_a_job_with_a_wrong_token_recorded_is_kept_until_recover_has_the_right_one(tmp_path: Path) -> None:
    port = free_port()
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1000"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    program = """
        import otel_ml
        with otel_ml.init("exp", id="one"):
            for step in otel_ml.steps(range(5)):
                otel_ml.log({"x": float(step)})
    """
    with serving({**here, "OTEL_ML_TOKEN": "the right one"}, port):
        _, said = run(program, {**there, "OTEL_ML_TOKEN": "a wrong one"}, tmp_path)
        still_wrong = otel_ml_command({**there, "OTEL_ML_TOKEN": "a wrong one"}, "recover")
        done = otel_ml_command({**there, "OTEL_ML_TOKEN": "the right one"}, "recover")
        eventually(lambda: written(tmp_path).get("x") == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]))

    assert "The receiver does not take the credentials of this process: HTTP 401" in said
    assert "not acknowledged" in said
    assert "are lost" not in said
    assert still_wrong.returncode == 1
    assert "The receiver does not take the credentials" in still_wrong.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 spool sent to" in done.stdout


LEFT_BEHIND = KILLED.replace('    assert otel_ml.flush(20)\n    print("delivered", flush=True)\n    input()\n', "")


def left_of_boots(tmp_path: Path, environ: dict[str, str], *digests: str) -> None:
    """Have jobs die that reached no service, and give each one's folder the name that it has of another boot."""
    for digest in digests:
        run(LEFT_BEHIND, environ, tmp_path, code=-signal.SIGKILL)
        [spool] = tmp_path.glob("run/*/*/spool")
        spool.parent.rename(tmp_path / digest)
    for digest in digests:
        [root] = tmp_path.glob("run/*")
        (tmp_path / digest).rename(root / digest)


@pytest.mark.parametrize("is_remote", [True, False])
def test_what_a_job_left_before_a_reboot_is_recovered(tmp_path: Path, is_remote: bool) -> None:
    port = free_port()
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    left_of_boots(tmp_path, there, "0" * 32)

    if is_remote:
        with serving(here, port):
            done = otel_ml_command(there, "recover", "--timeout", "20")
            eventually(lambda: "after" in written(tmp_path))
    else:
        done = otel_ml_command(here, "recover", "one", "--timeout", "20")
    again = otel_ml_command(here, "recover")

    assert done.returncode == 0, done.stdout + done.stderr
    assert ("1 spool sent to" if is_remote else "2 values of 1 spool and the journal") in done.stdout
    assert "after" in written(tmp_path)
    assert "Nothing to recover" in again.stdout
    assert not list(tmp_path.glob("run/*/*/spool"))


def test_what_one_run_left_in_two_boots_is_recovered_of_both(tmp_path: Path) -> None:
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1"})
    there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    left_of_boots(tmp_path, there, "0" * 32, "1" * 32)

    done = otel_ml_command(here, "recover", "one", "--timeout", "20")

    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(tmp_path.glob("run/*/*/spool"))


def leaves(tmp_path: Path, endpoint: str) -> dict[str, str]:
    """Have a job die that could not reach the endpoint that it was told; return its environment without it."""
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1", "OTEL_ML_EXPORTERS": "jsonl"})
    run(LEFT_BEHIND, {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, tmp_path, code=-signal.SIGKILL)
    return here


def test_what_was_on_its_way_to_an_endpoint_waits_for_it_and_is_there_once(tmp_path: Path) -> None:
    port = free_port()
    here = leaves(tmp_path, f"http://127.0.0.1:{port}")

    without_endpoint = otel_ml_command(here, "recover", "--timeout", "20")
    with_all = otel_ml_command(here, "recover", "--all", "--timeout", "20")
    kept = list(tmp_path.glob("run/*/*/spool/*.spool"))
    with serving(here, port):
        there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        with_endpoint = otel_ml_command(there, "recover", "--timeout", "20")
        eventually(lambda: "after" in written(tmp_path))
    again = otel_ml_command(here, "recover")

    assert (without_endpoint.returncode, with_all.returncode) == (1, 1), without_endpoint.stdout + with_all.stdout
    assert f"1 process of it sent to http://127.0.0.1:{port}." in " ".join(without_endpoint.stdout.split())
    assert "otel-ml recover one" in " ".join(without_endpoint.stdout.split())
    assert len(kept) == 1
    assert with_endpoint.returncode == 0, with_endpoint.stdout + with_endpoint.stderr
    assert written(tmp_path).get("after") == ([1], [2.0])
    assert "Nothing to recover" in again.stdout


def test_who_names_the_run_has_it_here_and_what_was_left_holds_no_credentials(tmp_path: Path) -> None:
    here = leaves(tmp_path, f"http://me:s3cret-s3cret@127.0.0.1:{free_port()}")
    [spool] = tmp_path.glob("run/*/*/spool/*.spool")
    content = spool.read_bytes()

    listed = otel_ml_command(here, "recover", "--dry-run")
    done = otel_ml_command(here, "recover", "one", "--timeout", "20")

    assert b"s3cret" not in content
    assert (listed.returncode, done.returncode) == (0, 0), done.stdout + done.stderr
    assert "Left alone: 1 process" in " ".join(listed.stdout.split())
    assert written(tmp_path).get("after") == ([1], [2.0])


def test_what_was_on_its_way_to_one_endpoint_goes_to_another_only_where_its_run_is_named(tmp_path: Path) -> None:
    was, port = f"http://127.0.0.1:{free_port()}", free_port()
    here = leaves(tmp_path, was)
    elsewhere = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    where = f"http://127.0.0.1:{port} (OTEL_EXPORTER_OTLP_ENDPOINT)"

    listed = otel_ml_command(elsewhere, "recover", "one", "--dry-run")
    while_down = otel_ml_command(elsewhere, "recover", "one", "--timeout", "2")
    with serving(here, port):
        unnamed = [otel_ml_command(elsewhere, "recover", *more, "--timeout", "20") for more in ([], ["--all"])]
        kept = list(tmp_path.glob("run/*/*/spool/*.spool"))
        done = otel_ml_command(elsewhere, "recover", "one", "--timeout", "20")
        eventually(lambda: "after" in written(tmp_path))

    for said in unnamed:
        assert said.returncode == 1, said.stdout
        assert f"Left alone: 1 process of it sent to {was}." in " ".join(said.stdout.split())
        assert f"or have it sent to {where} instead: otel-ml recover one" in " ".join(said.stdout.split())
    assert len(kept) == 1
    assert (listed.returncode, while_down.returncode, done.returncode) == (0, 1, 0), done.stdout + done.stderr
    for said in (listed, while_down, done):
        assert f"Its processes sent to {was}; what they left goes to {where} instead" in said.stdout
    assert f"one: sending to {where}, for at most 2 s" in while_down.stderr


def test_recover_names_the_variable_in_which_the_job_had_its_endpoint(tmp_path: Path) -> None:
    here = environment(tmp_path, {"OTEL_ML_END_SILENCE": "1", "OTEL_ML_EXPORTERS": "jsonl"})
    of_metrics = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"http://127.0.0.1:{free_port()}/v1/metrics"}
    run(LEFT_BEHIND, {**here, **of_metrics}, tmp_path, code=-signal.SIGKILL)

    left = otel_ml_command(here, "recover")

    assert left.returncode == 1, left.stdout
    assert "Run this again with OTEL_EXPORTER_OTLP_METRICS_ENDPOINT set as it was" in left.stdout
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" not in left.stdout


def test_a_job_that_lives_and_sends_to_an_endpoint_is_nothing_that_is_left(tmp_path: Path) -> None:
    here = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})
    with otlp_server() as server:
        there = {**here, "OTEL_EXPORTER_OTLP_ENDPOINT": server.url}
        process = start(LIVES, there, tmp_path)
        assert process.stdout is not None
        process.stdout.readline()
        meanwhile = otel_ml_command(here, "recover", "--timeout", "20")
        process.communicate("go\n", timeout=30)

    assert meanwhile.returncode == 0, meanwhile.stdout
    assert "its processes are alive, and send it themselves" in " ".join(meanwhile.stdout.split())
    assert not (tmp_path / "runs").exists()


LIVES = """
    import otel_ml
    with otel_ml.init("exp", id="one"):
        otel_ml.log({"x": 1.0}, step=0)
        assert otel_ml.flush(20)
        print("sent", flush=True)
        input()
"""

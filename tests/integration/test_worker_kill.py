"""`kill -9`, `os._exit`, `ray.kill`: what was recorded 200 ms before reaches the run, whoever brings it there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import otel_ml
from otel_ml.wire import attributes as keys
from otel_ml.wire.rendezvous import Service, rendezvous_of
from tests.integration.left_behind import STEPPING, kill_while_stepping, points_left
from tests.integration.worker_process import environment, run, start
from tests.otlp_server import OtlpServer, eventually, otlp_server
from tests.ports import free_port

pytestmark = pytest.mark.long

SPOOLED = """
    def wait_until_spooled(name):
        import glob, time
        from otel_ml.wire.spool_format import read_spool
        from pathlib import Path
        folder = os.environ["XDG_RUNTIME_DIR"]
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for path in glob.glob(f"{folder}/*/*/spool/*.spool"):
                if any(name.encode() in frame.payload for frame in read_spool(Path(path)).frames):
                    return
            time.sleep(0.01)  # between two looks
        raise SystemExit("It is not in the spool.")
"""


def steps_in(run_folder: Path) -> set[int]:
    return set(otel_ml.read(run_folder)["x"][0])


def test_the_service_of_the_job_brings_what_a_killed_worker_left(tmp_path: Path) -> None:
    variables = {"OTEL_ML_EXPERIMENT_ID": "one", "OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000"}
    environ = environment(tmp_path, {**variables, "OTEL_ML_FLUSH_INTERVAL": "60000"})
    folder = tmp_path / "runs" / "exp" / "one"
    process = start(STEPPING, environ, tmp_path)

    safe = kill_while_stepping(process, seconds=2.0, began=lambda: list(tmp_path.glob("run/*/*/service.json")))

    eventually(lambda: not list(tmp_path.glob("run/*/*/service.json")), within=60)  # it has finished the run
    assert safe
    assert safe <= steps_in(folder)


def test_otel_ml_recover_brings_what_a_killed_worker_left_into_a_run_of_this_host(tmp_path: Path) -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_ML_EXPERIMENT_ID": "one"}
    process = start(STEPPING, environment(tmp_path, endpoint), tmp_path)
    safe = kill_while_stepping(process, seconds=2.0)

    recover(environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000"}), tmp_path, "one")

    assert safe
    assert safe <= steps_in(tmp_path / "runs" / "exp" / "one")
    assert points_left(tmp_path) == []


def test_otel_ml_recover_sends_what_a_killed_worker_left_to_the_endpoint_of_its_job(tmp_path: Path) -> None:
    port = free_port()
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"})
    process = start(STEPPING, environ, tmp_path)
    safe = kill_while_stepping(process, seconds=2.0)

    said = recover(environ, tmp_path, code=1, timeout=1)
    assert "not done" in said
    with otlp_server(port=port) as server:
        said = recover(environ, tmp_path)
        arrived = {point.step for point in server.points("x")}

    assert f"1 spool sent to http://127.0.0.1:{port}" in said
    assert safe
    assert safe <= arrived
    assert points_left(tmp_path) == []
    assert not (tmp_path / "runs").exists()


def recover(environ: dict[str, str], folder: Path, *runs: str, code: int = 0, timeout: int = 60) -> str:
    command = [sys.executable, "-m", "otel_ml_service", "recover", *runs, "--timeout", str(timeout)]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_what_is_recorded_while_a_stopped_service_is_asked_whether_it_lives_survives_a_kill(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPERIMENT_ID": "one"})
    rendezvous = rendezvous_of("one", environ)
    lock = rendezvous.acquire()
    assert lock is not None
    patient = """
    import otel_ml._internal.transport.embedded
    otel_ml._internal.transport.embedded.HEALTH_TIMEOUT = 30.0  # not 0.25: the kill comes while it is asked
    """
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        address = f"http://127.0.0.1:{stopped.getsockname()[1]}"
        rendezvous.publish(Service(address, "t0k", os.getpid(), str(tmp_path), ("jsonl",)))
        safe = kill_while_stepping(start(patient + STEPPING, environ, tmp_path), seconds=2.0)
    os.close(lock)

    assert safe
    assert safe <= {point.step for point in points_left(tmp_path)}


def test_what_is_recorded_while_a_backlog_is_sent_survives_a_kill(tmp_path: Path) -> None:
    """After an outage request follows request: between them, too, the spool is written every 100 ms."""
    port = free_port()
    program = STEPPING.replace(
        "for step",
        """for step in range(100):
        otel_ml.log({f"old{number}": 1.0 for number in range(5000)}, step=step, axis="old")
    for step""",
    )
    environ = environment(tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"})
    process = start(program, environ, tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    with otlp_server(port=port) as server:
        server.pause = 0.25
        safe = kill_while_stepping(process, seconds=2.5, began=lambda: len(server.requests) > 2)
        arrived = {point.step for point in server.points("x")}

    left = points_left(tmp_path)
    assert [point for point in left if point.name.startswith("old")], "The backlog was still being sent."
    assert safe <= arrived | {point.step for point in left if point.name == "x"}


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_child_that_leaves_without_a_word_loses_nothing_that_is_in_its_spool(
    server: OtlpServer, tmp_path: Path, method: str, end: str
) -> None:
    program = f"""
    import multiprocessing, os, signal, otel_ml
{SPOOLED}
    def work():
        otel_ml.log({{"child": 1}}, step=1)
        wait_until_spooled("child")
        {end}

    if __name__ == "__main__":
        otel_ml.init("exp")
        child = multiprocessing.get_context({method!r}).Process(target=work)
        child.start()
        child.join()
        otel_ml.log({{"parent": child.exitcode}}, step=1)
"""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_FLUSH_INTERVAL": "60000"}

    run(program, environment(tmp_path, variables), tmp_path)

    [child], [parent] = server.points("child"), server.points("parent")
    assert child.resource["ml.parent"] == parent.resource["service.instance.id"]
    assert child.resource["service.instance.id"] != parent.resource["service.instance.id"]
    assert points_left(tmp_path) == []


def test_a_worker_of_a_dataloader_that_the_kernel_kills_loses_nothing_that_is_in_its_spool(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = f"""
    import os, signal, otel_ml, torch
{SPOOLED}
    class Samples(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            otel_ml.log({{f"sample{{index}}": index}}, step=index)
            if index == 7:
                wait_until_spooled("sample7")
                os.kill(os.getpid(), signal.SIGKILL)
            return index

    if __name__ == "__main__":
        otel_ml.init("exp")
        loader = torch.utils.data.DataLoader(Samples(), num_workers=2, multiprocessing_context="fork")
        try:
            for step, batch in enumerate(loader):
                otel_ml.log({{"batch": step}}, step=step)
        except RuntimeError as error:
            print("DataLoader worker" in str(error))
"""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_FLUSH_INTERVAL": "60000"}

    output, _ = run(program, environment(tmp_path, variables), tmp_path)

    assert output == "True\n"
    assert {f"sample{index}" for index in range(8)} <= {point.name for point in server.points()}
    assert len(server.points("sample7")) == 1


@pytest.mark.feature("N27", "better", "also where the actor is killed: what it recorded is on disk")
def test_an_actor_ended_by_ray_kill_loses_nothing_that_is_in_its_spool(server: OtlpServer, tmp_path: Path) -> None:
    program = f"""
    import os, ray, otel_ml
{SPOOLED}
    @ray.remote
    class Actor:
        def act(self, value):
            otel_ml.log({{"act": value}}, step=value)
            otel_ml.log({{"last_of_actor": value}}, step=value)
            wait_until_spooled("last_of_actor")
            return os.getpid()

    if __name__ == "__main__":
        otel_ml.init("exp")
        job = {{"env_vars": otel_ml.child_env()}}
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=job)
        actor = Actor.remote()
        pid = ray.get(actor.act.remote(3))
        ray.kill(actor)
        while os.path.exists(f"/proc/{{pid}}"):
            pass
        otel_ml.log({{"driver": 1}}, step=3)
        otel_ml.shutdown()
        ray.shutdown()
"""
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_FLUSH_INTERVAL": "60000"}

    run(program, environment(tmp_path, {**variables, "OTEL_SERVICE_NAME": ""}), tmp_path)

    [act], [driver] = server.points("act"), server.points("driver")
    assert act.value == 3.0
    assert act.resource["ml.experiment.id"] == driver.resource["ml.experiment.id"]
    assert act.resource["service.instance.id"] != driver.resource["service.instance.id"]
    assert act.resource["ml.parent"] == driver.resource["service.instance.id"]
    assert points_left(tmp_path) == []


def test_a_full_spool_drops_the_oldest_counts_them_and_names_the_steps(tmp_path: Path) -> None:
    port = free_port()
    program = """
        import otel_ml, sys
        otel_ml.init("exp")
        for step in range(40):
            otel_ml.set_step(step)
            otel_ml.log({f"x{number}": 1.0 for number in range(2000)})
        otel_ml.flush(0.5)
        print("ready", flush=True)
        sys.stdin.readline()
        assert otel_ml.flush(60)
    """
    environ = environment(
        tmp_path, {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_ML_SPOOL_MAX": str(2**20)}
    )
    process = start(program, environ, tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert sum(path.stat().st_size for path in tmp_path.glob("run/*/*/spool/*.spool")) < 1.5 * 2**20
    with otlp_server(port=port) as server:
        process.communicate("go\n", timeout=60)

        arrived = {point.step for point in server.points()}
        notices = [str(event.body) for event in server.events("ml.notice")]
        [goodbye] = server.events("ml.writer.end")
        points = len([point for point in server.points() if point.name.startswith("x")])

    assert goodbye.attributes[keys.DROPPED]["spool_full"] == 40 * 2000 - points
    assert arrived == set(range(min(arrived), 40))  # the oldest went first
    assert min(arrived) > 0
    gone = 40 * 2000 - points
    lost = f"The spool was full: {gone:,} points were dropped, of steps 0 to {min(arrived) - 1} of axis 'step'"
    assert [notice for notice in notices if notice.startswith(lost)]


def test_spans_that_a_killed_rank_of_a_large_job_held_back_reach_the_run_once(tmp_path: Path) -> None:
    variables = {"OTEL_ML_EXPERIMENT_ID": "one", "OTEL_ML_EXPORTERS": "jsonl", "OTEL_ML_END_SILENCE": "1000"}
    # Without a random beginning: spans wait for ten seconds, metrics for a tenth of that at most.
    large_job = """
    import random
    random.Random.uniform = lambda self, low, high: high
    """
    environ = environment(tmp_path, {**variables, "OTEL_ML_WORLD_SIZE": "128", "OTEL_ML_FLUSH_INTERVAL": "3333"})
    program = large_job + STEPPING.replace("otel_ml.log(", 'otel_ml.timed("phase")(otel_ml.log)(')
    folder = tmp_path / "runs" / "exp" / "one"
    process = start(program, environ, tmp_path)

    safe = kill_while_stepping(process, seconds=5.0, began=lambda: list(tmp_path.glob("run/*/*/service.json")))

    eventually(lambda: not list(tmp_path.glob("run/*/*/service.json")), within=60)
    spans = [json.loads(line) for line in (folder / "spans.jsonl").read_text().splitlines()]
    steps = [span["step"] for span in spans if span["name"] == "phase"]
    assert safe
    assert safe <= set(steps)
    assert len(steps) == len(set(steps))
    assert safe <= steps_in(folder)

"""The real W&B client against a server of ours: what it holds is what was exported, once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from otel_ml_service.cli.open_command import wandb_page
from otel_ml_service.stored_runs.run_folders import RunFolder
from tests.contract.stored import environment
from tests.contract.stream import training
from tests.fakes.wandb_server import API_KEY, FakeRun, FakeWandb
from tests.forked import Forked
from tests.integration.exporter_life import ENDLESS, RUN_ID, begin
from tests.waiting import eventually

WAIT = 60.0


@pytest.fixture
def server() -> Iterator[FakeWandb]:
    with FakeWandb() as fake:
        yield fake


@pytest.fixture(autouse=True)
def online(server: FakeWandb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_BASE_URL", server.address)
    monkeypatch.setenv("WANDB_API_KEY", API_KEY)
    monkeypatch.setenv("WANDB__FILE_STREAM_TRANSMIT_INTERVAL", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "digits" / RUN_ID
    folder.mkdir(parents=True)
    return folder


def until(condition: Callable[[], bool]) -> None:
    eventually(condition, timeout=WAIT)


def rows_of(run: FakeRun) -> list[tuple[int, dict[str, float]]]:
    """Return (`_step`, values) of every history row, values as text: NaN equals NaN."""
    return [
        (
            row["_step"],
            {key: repr(float(value)) for key, value in row.items() if key[0] != "_" and key[:8] != "otel_ml/"},
        )
        for row in run.history
    ]


def expected(last: int) -> list[tuple[int, dict[str, float]]]:
    return [
        (seq, {key: repr(float(value)) for key, value in training(seq).values.items()}) for seq in range(1, last + 1)
    ]


def test_a_run_killed_again_and_again_is_on_the_server_exactly_once(server: FakeWandb, run_dir: Path) -> None:
    for more in (60, 250, 400):
        before = len(server.runs[RUN_ID].history) if RUN_ID in server.runs else 0
        life = begin("wandb", run_dir, ENDLESS)
        until(lambda: RUN_ID in server.runs and len(server.runs[RUN_ID].history) >= before + more)  # noqa: B023
        life.kill()
        life.communicate()
    stored = len(server.runs[RUN_ID].history)

    last_life = begin("wandb", run_dir, stored + 300)
    last_life.communicate(timeout=WAIT)

    run = server.runs[RUN_ID]
    assert last_life.returncode == 0
    assert rows_of(run) == expected(stored + 300)
    assert (run.opened, run.exit_code, run.tags) == (4, 0, ["contract"])


def test_every_metric_is_drawn_over_its_own_axis(server: FakeWandb, run_dir: Path) -> None:
    begin("wandb", run_dir, 20).communicate(timeout=WAIT)

    run = server.runs[RUN_ID]
    # `m` is W&B's own form of what `define_metric` said: 1 is the name, 5 the number of the step metric in the list.
    metrics = run.config["_wandb"]["value"]["m"]
    drawn_over = {metric["1"]: metrics[metric["5"] - 1]["1"] for metric in metrics if "5" in metric}
    assert drawn_over["loss"] == "otel_ml/step"
    assert drawn_over["rollout/reward"] == "otel_ml/rollout"
    assert drawn_over["gpu/memory"] == "otel_ml/time"
    assert {row["otel_ml/rollout"] for row in run.history if "rollout/reward" in row} == {5, 12, 19}


def test_the_address_of_the_page_is_noted_for_otel_ml_open(server: FakeWandb, run_dir: Path) -> None:
    begin("wandb", run_dir, 5).communicate(timeout=WAIT)

    assert wandb_page(RunFolder(run_dir)).startswith(f"{server.address}/")
    assert wandb_page(RunFolder(run_dir)).endswith(f"/runs/{RUN_ID}")


def test_the_api_key_is_in_no_file(run_dir: Path) -> None:
    begin("wandb", run_dir, 5).communicate(timeout=WAIT)

    files = [path for path in run_dir.parents[1].rglob("*") if path.is_file()]
    assert [path.name for path in files if path.suffix == ".wandb"] == [f"run-{RUN_ID}.wandb"]
    assert [path for path in files if API_KEY.encode() in path.read_bytes()] == []


def scenario(name: str, run_dir: Path, env: Mapping[str, str] = {}) -> Forked:
    arguments = [name, str(run_dir)]
    return Forked("wandb", "tests.integration.wandb_scenarios", arguments, env={**environment(), **env}, cwd=run_dir)


def test_a_run_that_began_online_waits_for_its_server(run_dir: Path) -> None:
    begin("wandb", run_dir, 5).communicate(timeout=WAIT)

    said = scenario("the_server_is_away", run_dir, {"WANDB_BASE_URL": "http://127.0.0.1:9"}).communicate(timeout=WAIT)

    assert said.splitlines() == [
        "RetryableExportError: W&B: http://127.0.0.1:9 does not answer; the run is on the server and waits for it. "
        "(otel-ml explain exporter-failing)",
        "ConfigError: wandb: this run is on the server already and cannot go on offline. "
        "Unset WANDB_MODE and `mode`, or begin a run of another id. (otel-ml explain wandb-offline)",
    ]


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        ({"WANDB_API_KEY": ""}, "no API key (run `wandb login` or set WANDB_API_KEY)"),
        ({"WANDB_BASE_URL": "http://127.0.0.1:9"}, "http://127.0.0.1:9 does not answer"),
    ],
)
@pytest.mark.feature("I11", "better", "decided by itself where there is no key or network")
def test_without_key_or_network_the_run_is_kept_offline_and_stays_so(
    server: FakeWandb, run_dir: Path, env: dict[str, str], reason: str
) -> None:
    no_netrc = {"NETRC": str(run_dir / "none")}
    first = scenario("a_start_without_a_key", run_dir, {**no_netrc, **env}).communicate(timeout=WAIT)
    second = scenario("a_start_without_a_key", run_dir).communicate(timeout=WAIT)

    assert first.startswith(f"W&B: {reason}; the run is kept offline. Upload it afterwards: wandb login; wandb sync ")
    assert second == "W&B: the run goes on offline, as it began. (otel-ml explain wandb-offline)\n"
    assert server.runs == {}


@pytest.mark.full
def test_what_a_broken_server_did_not_take_is_delivered_by_the_next_start(server: FakeWandb, run_dir: Path) -> None:
    first = scenario("the_upload_is_slow", run_dir)
    until(lambda: RUN_ID in server.runs and len(server.runs[RUN_ID].history) == 30)
    server.broken.set()
    said = first.communicate("go on\n", timeout=WAIT)
    server.broken.clear()

    begin("wandb", run_dir, 90).communicate(timeout=WAIT)

    assert said == "W&B: the upload was not finished within 300 ms. (otel-ml explain exporter-failing)\n"
    assert rows_of(server.runs[RUN_ID]) == expected(90)


@pytest.mark.full
def test_after_an_outage_the_run_catches_up_within_two_requests_a_second(server: FakeWandb, run_dir: Path) -> None:
    server.rate = 2.0
    life = begin("wandb", run_dir, ENDLESS)
    until(lambda: RUN_ID in server.runs and len(server.runs[RUN_ID].history) >= 30)
    server.broken.set()
    missed = next(seq for seq in map(int, life.stdout) if seq > len(server.runs[RUN_ID].history) + 1500)
    began = len(server.sent)
    server.broken.clear()

    until(lambda: len(server.runs[RUN_ID].history) >= missed)
    catching_up = server.sent[began:]
    life.kill()
    life.communicate()
    last = len(server.runs[RUN_ID].history) + 100
    begin("wandb", run_dir, last).communicate(timeout=WAIT)

    assert rows_of(server.runs[RUN_ID]) == expected(last)
    assert max(sum(moment <= other < moment + 1.0 for other in catching_up) for moment in catching_up) <= 2


def test_metrics_beyond_the_budget_of_names_are_left_out_and_the_rows_stay_whole(
    server: FakeWandb, run_dir: Path
) -> None:
    said = scenario("too_many_names", run_dir).communicate(timeout=WAIT)

    assert said.splitlines() == [
        "W&B: the run has 3 metrics (option `names`); values of further ones are not written there, the other "
        "exporters have them. Is a step or an id part of a metric's name or attributes? "
        "(otel-ml explain records-refused)"
    ]
    rows = [{key: value for key, value in row.items() if key[0] == "m"} for row in server.runs[RUN_ID].history]
    assert rows == [{"m0": 1.0, "m1": 1.0}, {"m1": 2.0, "m2": 2.0}, {"m2": 3.0}, {}, {"m0": 5.0}]


@pytest.mark.full
def test_the_death_of_the_client_s_own_process_asks_for_a_restart(server: FakeWandb, run_dir: Path) -> None:
    said = scenario("the_service_dies", run_dir).communicate(timeout=WAIT)

    assert "the process wandb-core is gone" in said
    assert rows_of(server.runs[RUN_ID]) == expected(60)
    assert server.runs[RUN_ID].exit_code == 0


def test_a_run_that_is_opened_again_within_a_second_writes_over_nothing(run_dir: Path) -> None:
    """W&B names its folders after the second: a service that is killed and started at once would lose its rows."""
    scenario("a_start_in_the_second_of_another", run_dir, {"WANDB_MODE": "offline"}).communicate(timeout=WAIT)

    logs = [path.read_bytes() for path in sorted((run_dir.parents[1] / "wandb").glob("offline-run-*/*.wandb"))]
    assert logs[:2] == [b"its rows", b"its rows"]
    assert len(logs) == 3


def test_rows_that_the_client_s_own_process_never_wrote_are_not_taken_for_stored(run_dir: Path) -> None:
    offline = {"WANDB_MODE": "offline"}
    lives = ["the_rows_are_lost_with_the_service"] * 2
    lives += ["the_position_is_asked_for", *lives, "the_position_is_asked_for"]
    positions = [scenario(life, run_dir, offline).communicate(timeout=WAIT).split()[0] for life in lives]

    assert positions == ["0", "0", "0", "30", "30", "30"]


def test_of_rows_that_were_uploaded_and_removed_the_client_tells_nothing(run_dir: Path) -> None:
    offline = {"WANDB_MODE": "offline"}
    scenario("the_position_is_asked_for", run_dir, offline).communicate(timeout=WAIT)
    for folder in (run_dir.parents[1] / "wandb").glob("offline-run-*"):
        shutil.rmtree(folder)

    said = scenario("the_position_is_asked_for", run_dir, offline).communicate(timeout=WAIT)

    assert said.split()[0] == "None"


def test_an_offline_run_whose_end_is_nowhere_to_be_read_is_said_not_to_be_finished(run_dir: Path) -> None:
    said = scenario("the_log_is_removed", run_dir, {"WANDB_MODE": "offline"}).communicate(timeout=WAIT)

    assert f"run-{RUN_ID}.wandb' has no end yet" in said


def test_the_files_of_a_run_killed_offline_are_synchronised_exactly_once(server: FakeWandb, run_dir: Path) -> None:
    last = 0
    for batches in (3, 7):
        life = begin("wandb", run_dir, ENDLESS, options={"mode": "offline"})
        last = [int(line) for line, _ in zip(life.stdout, range(batches), strict=False)][-1]
        life.kill()
        life.communicate()
    begin("wandb", run_dir, last + 200, options={"mode": "offline"}).communicate(timeout=WAIT)
    files = sorted((run_dir.parents[1] / "wandb").glob(f"offline-run-*-{RUN_ID}*"))

    command = [sys.executable, "-m", "wandb", "sync", *map(str, files)]
    done = subprocess.run(command, env=environment(), cwd=run_dir, capture_output=True, text=True, check=False)

    assert len(files) == 3
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows_of(server.runs[RUN_ID]) == expected(last + 200)

"""A launch in which one rank begins runs that others do not: names tell which run is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.recorded_by import ids_of, values_of
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer

LAUNCH = """
import os, subprocess, sys
launch = {**os.environ, "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", **TOLD}
ranks = [
    subprocess.Popen([sys.executable, "rank.py"], env={**launch, "RANK": str(i), "LOCAL_RANK": str(i)})
    for i in range(3)
]
sys.exit(sum(process.wait() for process in ranks))
"""

LAUNCHERS = {"torchrun": {"TORCHELASTIC_RUN_ID": "none"}, "by-hand": {"MASTER_PORT": "29500"}}

RANK = """
import os, pathlib, time
import otel_ml
rank = int(os.environ["RANK"])
def touch(name):
    pathlib.Path(f"{name}_{rank}").touch()
def wait_for(name, ranks):
    while not all(pathlib.Path(f"{name}_{i}").exists() for i in ranks):
        time.sleep(0.01)  # between two looks
"""


def launch(folder: Path, server: OtlpServer, rank: str, told: dict[str, str], **more: str) -> str:
    """Run a program as three ranks; return what they have said."""
    return launch_in(environment(folder, variables(server, **more)), folder, rank, told)


def launch_unasked(folder: Path, rank: str, told: dict[str, str], **more: str) -> str:
    """The same in an environment that asks for no run."""
    environ = environment(folder, more)
    del environ["OTEL_ML_DIR"]
    return launch_in(environ, folder, rank, told)


def launch_in(environ: dict[str, str], folder: Path, rank: str, told: dict[str, str]) -> str:
    (folder / "rank.py").write_text(RANK + rank)
    _, errors = run(LAUNCH.replace("TOLD", repr(told)), environ, folder)
    return errors


PREPARES = """
if rank == 0:
    FIRST
    with otel_ml.init("exp", name="prepare"):
        otel_ml.log({"tokens": 1.0}, step=0)
    touch("prepared")
else:
    OTHERS
with otel_ml.init("exp", name=TRAIN):
    touch("begun")
    otel_ml.log({"loss": float(rank)}, step=0)
    wait_for("begun", range(3))
"""

ORDERS = {
    "rank-0-first": {"FIRST": "pass", "OTHERS": "wait_for('prepared', [0])"},
    "others-first": {"FIRST": "wait_for('begun', [1, 2])", "OTHERS": "pass"},
}
TRAIN = {"a-name": "'train'", "the-time": "f'train-{time.time_ns()}'"}


@pytest.mark.parametrize("told", LAUNCHERS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", TRAIN)
def test_a_run_that_rank_0_alone_begins_before_takes_no_other_rank_into_it(
    server: OtlpServer, tmp_path: Path, told: str, order: str, name: str
) -> None:
    rank = PREPARES.replace("TRAIN", TRAIN[name])
    for place, what in ORDERS[order].items():
        rank = rank.replace(place, what)

    launch(tmp_path, server, rank, LAUNCHERS[told])

    assert values_of(server, "tokens") == {"prepare": [1.0]}
    assert sorted(point.value for point in server.points("loss")) == [0.0, 1.0, 2.0]
    assert len(ids_of(server, "loss")) == 1
    assert not ids_of(server, "loss") & ids_of(server, "tokens")


LOOPS = {
    "names-of-the-time": "with otel_ml.init('exp', name=f'resnet-{time.time_ns()}'):",
    "names-of-some-letters-and-numbers": "with otel_ml.init('exp', name=f'resnet_{os.urandom(8).hex()}'):",
    "no-names": "with otel_ml.init('exp'):",
    "a-name-on-rank-0-alone": "with otel_ml.init('exp', **({} if rank else {'name': f'{fold}. fold'})):",
    "one-name": "with otel_ml.init('exp', name='fold'):",
    "names-of-folds": "with otel_ml.init('exp', name=f'fold-{fold}'):",
    "words": "with otel_ml.init('exp', name=['first', 'second', 'third'][fold]):",
}


@pytest.mark.parametrize("begin", LOOPS)
def test_runs_that_all_ranks_begin_one_after_the_other_are_each_a_run_of_all_ranks(
    server: OtlpServer, tmp_path: Path, begin: str
) -> None:
    loop = f"""
for fold in range(3):
    {LOOPS[begin]}
        otel_ml.log({{"loss": 10.0 * fold + rank}}, step=0)
"""

    launch(tmp_path, server, loop, LAUNCHERS["torchrun"])

    runs: dict[str, list[float]] = {}
    for point in server.points("loss"):
        runs.setdefault(point.resource["ml.experiment.id"], []).append(point.value)
    assert sorted(sorted(values) for values in runs.values()) == [
        [10.0 * fold + rank for rank in range(3)] for fold in range(3)
    ]


def test_of_a_launch_that_is_started_again_each_run_goes_on_by_its_name(server: OtlpServer, tmp_path: Path) -> None:
    rank = """
import subprocess, sys
if len(sys.argv) == 1:  # as the agent starts its ranks again
    again = {**os.environ, "TORCHELASTIC_RESTART_COUNT": "1"}
    with otel_ml.init("exp", name="train"):
        otel_ml.log({"loss": 1.0}, step=0)
    sys.exit(subprocess.call([sys.executable, "rank.py", "again"], env=again))
if rank == 0:
    with otel_ml.init("exp", name="prepare"):
        otel_ml.log({"tokens": 1.0}, step=0)
with otel_ml.init("exp", name="train"):
    otel_ml.log({"loss": 2.0}, step=1)
"""

    launch(tmp_path, server, rank, {**LAUNCHERS["torchrun"], "TORCHELASTIC_RESTART_COUNT": "0"})

    assert len(ids_of(server, "loss")) == 1
    assert len(ids_of(server, "tokens")) == 1
    assert not ids_of(server, "loss") & ids_of(server, "tokens")


def test_a_loop_of_folds_that_is_started_again_goes_on_in_the_runs_of_its_folds(
    server: OtlpServer, tmp_path: Path
) -> None:
    rank = """
import sys
again = {**os.environ, "TORCHELASTIC_RESTART_COUNT": "1"}
done = len(sys.argv) > 1  # the first fold: started again, as by the agent, the loop goes on with the second
for fold in range(1 if done else 0, 3):
    with otel_ml.init("cv", name=f"fold-{fold}"):
        otel_ml.log({"loss": 10.0 * fold + rank}, step=0)
        if fold == 1 and not done:
            otel_ml.flush(10)
            os.execve(sys.executable, [sys.executable, "rank.py", "again"], again)
"""

    launch(tmp_path, server, rank, {**LAUNCHERS["torchrun"], "TORCHELASTIC_RESTART_COUNT": "0"})

    runs: dict[str, set[float]] = {}
    for point in server.points("loss"):
        runs.setdefault(point.resource["ml.experiment.id"], set()).add(point.value // 10)
    assert sorted(runs.values(), key=sorted) == [{0.0}, {1.0}, {2.0}]


@pytest.mark.parametrize("told", LAUNCHERS)
def test_one_more_fold_of_rank_0_shifts_no_other_rank(server: OtlpServer, tmp_path: Path, told: str) -> None:
    rank = """
if rank == 0:
    with otel_ml.init("cv", name="stage-1"):
        otel_ml.log({"loss": 1.0}, step=0)
with otel_ml.init("cv", name="stage-2"):
    otel_ml.log({"loss": 20.0 + rank}, step=0)
"""

    launch(tmp_path, server, rank, LAUNCHERS[told])

    runs: dict[str, list[float]] = {}
    for point in server.points("loss"):
        runs.setdefault(point.resource["ml.experiment.id"], []).append(point.value)
    assert sorted(map(sorted, runs.values())) == [[1.0], [20.0, 21.0, 22.0]]


FOLDS_OF_RANK_0 = """
for fold in range(2):
    if rank == 0:
        run = otel_ml.init("cv", name=f"fold-{fold}")
        touch(f"begun_{fold}")
    if rank or fold == 0:
        wait_for(f"begun_{fold}", [0])
        otel_ml.log({"loss": 10.0 * fold + rank}, step=2 * fold)
        touch(f"recorded_{fold}")
    else:
        otel_ml.log({"loss": 10.0}, step=2 * fold)
    wait_for(f"recorded_{fold}", [1, 2])
    if rank == 0:
        END
"""


@pytest.mark.parametrize("end", ["run.finish()", "pass"], ids=["one-after-the-other", "beside"])
def test_that_ranks_stay_in_the_run_they_joined_when_rank_0_begins_another_one_is_said_there(
    server: OtlpServer, tmp_path: Path, end: str
) -> None:
    errors = launch(tmp_path, server, FOLDS_OF_RANK_0.replace("END", end), LAUNCHERS["torchrun"])

    assert errors.count("explain ranks-stay") == 1, errors
    assert "Ranks 1, 2 " in errors
    (said,) = [event for event in server.events("ml.notice") if "ranks-stay" in str(event.body)]
    assert said.resource["ml.run.name"] == "fold-1"


@pytest.mark.parametrize("others", ["pass", "otel_ml.init('cv', name='fold-0')"], ids=["record-nothing", "call-init"])
def test_ranks_that_have_not_followed_rank_0_are_not_said_to_stay(
    server: OtlpServer, tmp_path: Path, others: str
) -> None:
    rank = f"""
if rank == 0:
    for fold in range(2):
        with otel_ml.init("cv", name=f"fold-{{fold}}"):
            otel_ml.log({{"loss": 1.0}}, step=0)
            wait_for("there", [1, 2])
else:
    {others}
    touch("there")
"""

    assert "ranks-stay" not in launch(tmp_path, server, rank, LAUNCHERS["torchrun"])


RANK_0_IS_LATE = """
import atexit
if rank == 0:
    wait_for("ended", [1, 2])
    BEGIN
else:
    atexit.register(touch, "ended")  # called after what is registered at the first record
    if rank == 1:
        for i in range(RECORDS):
            otel_ml.log({"loss": float(i), "lr": 0.1}, step=i)
        otel_ml.log_text("note", "and one more")
"""

TWO_FOLDS = """
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = os.environ["RECEIVER"]
    for fold in range(2):
        with otel_ml.init("cv", name=f"fold-{fold}"):
            otel_ml.log({"loss": 1.0}, step=0)
"""


@pytest.mark.parametrize("told", LAUNCHERS)
@pytest.mark.parametrize("records", [3, 30_000])
def test_what_a_rank_loses_that_ends_before_rank_0_begins_a_run_is_said_once_and_counted_in_that_run(
    server: OtlpServer, tmp_path: Path, told: str, records: int
) -> None:
    rank = RANK_0_IS_LATE.replace("RECORDS", str(records)).replace("BEGIN", TWO_FOLDS)

    errors = launch_unasked(tmp_path, rank, LAUNCHERS[told], RECEIVER=server.url)

    lost = 2 * records + 1
    assert errors.count("explain ended-before-init") == 1, errors
    assert "Rank 1 had ended before rank 0 began run cv/" in errors
    assert f"Values lost: {lost:,}." in errors
    (said,) = [event for event in server.events("ml.notice") if "ended-before-init" in str(event.body)]
    assert said.resource["ml.run.name"] == "fold-0"
    dropped = [event.attributes["otel_ml.dropped"] for event in server.events("ml.writer.end")]
    assert [each for each in dropped if each] == [{"ended_before_init": lost}]


@pytest.mark.parametrize("told", LAUNCHERS)
def test_a_launch_that_begins_no_run_and_asks_for_none_says_nothing(tmp_path: Path, told: str) -> None:
    rank = RANK_0_IS_LATE.replace("RECORDS", "3").replace("BEGIN", 'otel_ml.log({"loss": 1.0})')

    assert launch_unasked(tmp_path, rank, LAUNCHERS[told]) == ""


def test_launches_that_begin_no_run_leave_nothing_behind_but_for_the_last_one(tmp_path: Path) -> None:
    rank = 'otel_ml.log({"loss": 1.0})'
    for told in [*LAUNCHERS.values()] * 2:
        launch_unasked(tmp_path, rank, told)

    left = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len([path for path in left if path.name.endswith(".launch.json")]) <= 1, left
    assert len(left) <= 2, left


ONE_AFTER_THE_OTHER = """
import os, subprocess, sys
launch = {**os.environ, "WORLD_SIZE": "2", "MASTER_PORT": "29500"}
for program in ("prepare.py", "train.py"):
    ranks = [subprocess.Popen([sys.executable, program], env={**launch, "RANK": str(i)}) for i in (0, 1)]
    assert not sum(process.wait() for process in ranks)
"""


def test_what_one_rank_recorded_before_by_hand_parts_no_ranks_of_the_program_that_follows(
    server: OtlpServer, tmp_path: Path
) -> None:
    (tmp_path / "prepare.py").write_text(f"{RANK}\nif rank == 1:\n    otel_ml.log({{'tokens': 1.0}})\n")
    (tmp_path / "train.py").write_text(
        f"{RANK}\nos.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] = os.environ['RECEIVER']\n"
        "with otel_ml.init('exp'):\n    otel_ml.log({'loss': float(rank)}, step=0)\n"
    )
    environ = environment(tmp_path, {"RECEIVER": server.url})
    del environ["OTEL_ML_DIR"]

    _, errors = run(ONE_AFTER_THE_OTHER, environ, tmp_path)

    assert len(ids_of(server, "loss")) == 1
    assert "Values lost: 1." in errors

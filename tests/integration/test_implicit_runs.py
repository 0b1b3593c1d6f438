"""What is recorded before `init()`: the environment asks for a run of its own, or nobody does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.jobs import services_of, until
from tests.integration.worker_process import environment, run, variables
from tests.otlp_server import OtlpServer


def runs_of(server: OtlpServer, name: str) -> dict[str, list[int]]:
    """Return the runs that hold the metric: `experiment/id` → the ranks that recorded it."""
    found: dict[str, set[int]] = {}
    for point in server.points(name):
        told = point.resource
        run_id = f"{told['ml.experiment.name']}/{told['ml.experiment.id']}"
        found.setdefault(run_id, set()).add(told.get("ml.rank", 0))
    return {run_id: sorted(ranks) for run_id, ranks in found.items()}


LATE = """
    import otel_ml
    with otel_ml.timed("load"):
        pass
    with otel_ml.init("my-exp", params={"lr": 0.1}) as run:
        otel_ml.log({"v": 1.0}, step=0)
    print(f"{run.experiment}/{run.id}")
"""


@pytest.mark.parametrize(
    "tuning", [{}, {"OTEL_ML_CONSOLE": "off"}, {"OTEL_ML_STRICT": "true"}, {"OTEL_ML_LISTEN_HTTP": "127.0.0.1:0"}]
)
def test_variables_that_only_tune_recording_ask_for_no_run(tmp_path: Path, tuning: dict[str, str]) -> None:
    environ = environment(tmp_path, {**tuning, "OTEL_ML_CAPTURE": "off"})
    del environ["OTEL_ML_DIR"]

    output, _ = run(LATE.replace('"my-exp", ', '"my-exp", exporters="jsonl", '), environ, tmp_path)

    until(lambda: not services_of(XDG_RUNTIME_DIR=environ["XDG_RUNTIME_DIR"]))  # what it had is written
    (folder,) = tmp_path.glob("otel-ml-runs/*/*/")
    assert output == f"my-exp/{folder.name}\n"
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert {name for row in rows for name in row.get("values", {}) if "/" not in name} == {"v"}


@pytest.mark.parametrize("before", ["pass", "otel_ml.log({'warm_up': 1.0})"])
def test_a_monitor_that_runs_before_init_begins_no_run_and_keeps_none(
    server: OtlpServer, tmp_path: Path, before: str
) -> None:
    program = f"""
        import time
        import otel_ml
        from otel_ml.diagnostics import hardware
        {before}
        with hardware.start_monitor(0.01):
            time.sleep(0.3)  # a monitor that begins nothing leaves nothing to wait for
            with otel_ml.init("my-exp", id="mine"):
                otel_ml.log({{"v": 1.0}}, step=0)
    """

    _, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert list(runs_of(server, "v")) == ["my-exp/mine"]
    assert "changes nothing" not in errors


@pytest.mark.parametrize("strict", ["false", "true"])
def test_init_wins_over_the_run_that_the_environment_had_begun_and_says_where_that_is(
    server: OtlpServer, tmp_path: Path, strict: str
) -> None:
    environ = environment(tmp_path, variables(server, OTEL_ML_STRICT=strict))

    output, errors = run(LATE, environ, tmp_path)

    (before,) = runs_of(server, "time/load")
    assert list(runs_of(server, "v")) == [output.strip()]
    assert before.startswith("default/")
    assert output.startswith("my-exp/")
    assert errors.count(f"recorded before is in run {before}") == 1
    assert "(otel-ml explain init-late)" in errors
    ends = server.events("ml.writer.end")
    assert [end.attributes["ml.status"] for end in ends] == ["finished", "finished"]
    assert len({end.resource["ml.experiment.id"] for end in ends}) == 2


def test_the_step_that_was_set_before_init_is_the_step_after_it(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import otel_ml
        otel_ml.set_step(40)
        otel_ml.set_step(7, axis="rollout")
        otel_ml.log({"before": 1})
        otel_ml.init("my-exp")
        otel_ml.log({"after": 1})
        otel_ml.log({"reward": 1}, axis="rollout")
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    steps = {point.name: point.step for point in server.points()}
    assert (steps["before"], steps["after"], steps["reward"]) == (40, 40, 7)


def test_init_with_nothing_else_than_the_environment_says_goes_on_with_its_run(
    server: OtlpServer, tmp_path: Path
) -> None:
    program = """
        import otel_ml
        otel_ml.log({"v": 1}, step=0)
        otel_ml.init("my-exp", topology={"dp": (1, 2)}, params={"lr": 0.1})
        otel_ml.log({"v": 1}, step=1)
    """

    _, errors = run(program, environment(tmp_path, variables(server, OTEL_ML_EXPERIMENT_NAME="my-exp")), tmp_path)

    assert len(runs_of(server, "v")) == 1
    assert [event.body for event in server.events("ml.params")] == [{"lr": 0.1}]
    assert "init(" not in errors


def test_init_with_the_place_that_the_launcher_gave_goes_on_with_the_run(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, otel_ml
        otel_ml.log({"v": 1}, step=0)
        otel_ml.init(rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        otel_ml.log({"v": 1}, step=1)
    """

    _, errors = run(program, environment(tmp_path, variables(server, RANK="1", WORLD_SIZE="2")), tmp_path)

    assert list(runs_of(server, "v").values()) == [[1]]
    assert "init(" not in errors


def test_a_run_that_the_environment_names_is_not_left(server: OtlpServer, tmp_path: Path) -> None:
    environ = environment(tmp_path, variables(server, OTEL_ML_EXPERIMENT_ID="one"))

    output, errors = run(LATE, environ, tmp_path)

    assert output == "default/one\n"
    assert list(runs_of(server, "time/load")) == list(runs_of(server, "v")) == ["default/one"]
    assert "init(experiment='my-exp') while a run is active changes nothing" in errors


@pytest.mark.parametrize("handed_on", ["", ", **otel_ml.child_env()"])
def test_the_run_of_the_parent_is_not_left(server: OtlpServer, tmp_path: Path, handed_on: str) -> None:
    program = f"""
        import os, subprocess, sys, otel_ml
        run = otel_ml.init("theirs")
        child = "import otel_ml; otel_ml.log({{'v': 1}}, step=0); otel_ml.init('mine'); otel_ml.log({{'v': 1}}, step=1)"
        environ = {{**os.environ{handed_on}}}
        assert subprocess.run([sys.executable, "-c", child], env=environ).returncode == 0
        print(f"theirs/{{run.id}}")
    """

    output, errors = run(program, environment(tmp_path, variables(server)), tmp_path)

    assert list(runs_of(server, "v")) == [output.strip()]
    assert "init(experiment='mine') while a run is active changes nothing" in errors


def test_a_run_that_others_were_told_of_is_not_left(server: OtlpServer, tmp_path: Path) -> None:
    program = """
        import os, subprocess, sys, otel_ml
        environ = {**os.environ, **otel_ml.child_env()}
        run = otel_ml.init("mine")
        otel_ml.log({"v": 1}, step=0)
        child = "import otel_ml; otel_ml.log({'v': 1}, step=0)"
        assert subprocess.run([sys.executable, "-c", child], env=environ).returncode == 0
    """

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert len(runs_of(server, "v")) == 1


INTERFACES = {
    "wandb": "from otel_ml.compat import wandb; wandb.init(project='my-exp'); wandb.log({'v': 1})",
    "mlflow": """
from otel_ml.compat import mlflow
mlflow.set_experiment('my-exp')
with mlflow.start_run():
    mlflow.log_metric('v', 1)
""",
    "verl": "from otel_ml.compat.verl import Tracking; Tracking('my-exp', 'one', ['console']).log({'v': 1}, 0)",
    "itwinai": """
from otel_ml.compat.itwinai import MLFlowLogger
with MLFlowLogger(experiment_name='my-exp').start_logging() as logger:
    logger.log(1.0, 'v', kind='metric')
""",
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_a_run_begun_by_another_interface_wins_too(server: OtlpServer, tmp_path: Path, interface: str) -> None:
    program = f"import otel_ml\notel_ml.log({{'load': 1}}, step=0)\n{INTERFACES[interface]}"

    run(program, environment(tmp_path, variables(server)), tmp_path)

    assert [name.partition("/")[0] for name in runs_of(server, "load")] == ["default"]
    assert [name.partition("/")[0] for name in runs_of(server, "v")] == ["my-exp"]


RANKS = """
    import os, subprocess, sys
    environ = {{**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "0"}}
    ranks = [
        subprocess.Popen([sys.executable, "-c", {rank!r}], env={{**environ, "RANK": str(i), "LOCAL_RANK": str(i)}})
        for i in range(2)
    ]
    sys.exit(sum(process.wait() for process in ranks))
"""


def test_a_launch_is_one_run_whichever_of_its_ranks_recorded_before_init(server: OtlpServer, tmp_path: Path) -> None:
    rank = """
import os, otel_ml
if os.environ["RANK"] == "1":
    otel_ml.log({"load": 1}, step=0)
otel_ml.init("my-exp")
otel_ml.log({"v": 1}, step=0)
"""

    run(RANKS.format(rank=rank), environment(tmp_path, variables(server)), tmp_path)

    assert len({name.partition("/")[2] for name in (*runs_of(server, "load"), *runs_of(server, "v"))}) == 1
    assert {name.partition("/")[0] for name in (*runs_of(server, "load"), *runs_of(server, "v"))} == {"my-exp"}
    assert not [notice for notice in server.events("ml.notice") if "init(" in str(notice.body)]


def test_a_second_run_of_a_launch_has_an_id_of_its_own_on_which_all_ranks_agree(
    server: OtlpServer, tmp_path: Path
) -> None:
    rank = """
import otel_ml
for name in ("first", "second", "third"):
    with otel_ml.init(name):
        otel_ml.log({name: 1}, step=0)
"""

    run(RANKS.format(rank=rank), environment(tmp_path, variables(server)), tmp_path)

    found = [runs_of(server, name) for name in ("first", "second", "third")]
    assert [list(of_name.values()) for of_name in found] == [[[0, 1]]] * 3
    assert len({run_id.partition("/")[2] for of_name in found for run_id in of_name}) == 3

"""What a run is called: by its program, and by every command afterwards."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from otel_ml.wire.readable_name import readable_name
from tests.integration.worker_process import environment, run

PROGRAM = """
    import otel_ml
    with otel_ml.init("digits", {arguments}) as run:
        otel_ml.log({{"loss": 1.0}}, step=0)
    print(run.id, run.name)
"""


def listed(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "otel_ml_service", "runs", "--json"]
    shown = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    return {row["id"]: row["name"] for row in map(json.loads, shown.splitlines())}


def test_a_run_has_the_name_it_was_given(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})

    output, errors = run(PROGRAM.format(arguments='name="baseline", notes="of Monday"'), environ, tmp_path)

    run_id, name = output.split()
    assert name == "baseline"
    assert errors.startswith("otel_ml: run digits/baseline → ")
    assert listed(environ, tmp_path) == {run_id: "baseline"}


def test_a_run_without_a_name_has_a_readable_one_everywhere_and_keeps_its_id(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})

    output, errors = run(PROGRAM.format(arguments=""), environ, tmp_path)

    run_id, name = output.split()
    assert re.fullmatch("[a-z]+-[a-z]+-[0-9]+", name)
    assert name == readable_name(run_id)
    assert errors.startswith(f"otel_ml: run digits/{name} → ./runs/digits/{run_id}")
    assert listed(environ, tmp_path) == {run_id: name}


def test_ranks_of_a_torchrun_that_makes_up_an_id_agree_on_a_readable_name(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(PROGRAM.format(arguments="")))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]

    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)

    [(run_id, name)] = {tuple(line.split()) for line in ended.stdout.splitlines()}
    assert re.fullmatch("[a-z]+-[a-z]+-[0-9]+", name)
    assert f"otel_ml: run digits/{name} → " in ended.stderr
    assert listed(environ, tmp_path) == {run_id: name}


def test_an_id_that_a_person_chose_is_the_name(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})

    output, _ = run(PROGRAM.format(arguments='id="sweep-7"'), environ, tmp_path)

    assert output.split() == ["sweep-7", "sweep-7"]
    assert listed(environ, tmp_path) == {"sweep-7": "sweep-7"}


def test_a_run_that_goes_on_by_its_id_is_called_as_it_was_begun(tmp_path: Path) -> None:
    environ = environment(tmp_path, {"OTEL_ML_EXPORTERS": "jsonl"})
    run(PROGRAM.format(arguments='id="01M8F23108RN4QKFZRG9ZG7R6Y", name="baseline"'), environ, tmp_path)

    _, errors = run(PROGRAM.format(arguments='id="01M8F23108RN4QKFZRG9ZG7R6Y"'), environ, tmp_path)

    first, *_, last = errors.splitlines()
    assert first.startswith("otel_ml: run digits/baseline → ")
    assert last.startswith("otel_ml: run digits/baseline finished.")
    assert listed(environ, tmp_path) == {"01M8F23108RN4QKFZRG9ZG7R6Y": "baseline"}

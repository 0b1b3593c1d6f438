"""`python examples/async_rl.py`: roles that learn leave the RL list in one run, and what is wrong is found in it.

It also runs commands of docs/diagnostics/why.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import otel_ml
from otel_ml.diagnostics import rl
from tests.e2e.jobs import ROOT, environment, the_run_in


def spans_of(runs: Path) -> list[str]:
    return [line for path in runs.glob("*/*/spans.jsonl") for line in path.read_text().splitlines()]


def ids(span: Mapping[str, str]) -> tuple[str, str]:
    """Return what tells a span from all others: contexts of one version have 256 span ids, and a trace each."""
    return span["trace_id"], span["span_id"]


@pytest.mark.full
@pytest.mark.timeout(450)  # five processes import torch or Ray
@pytest.mark.feature("F19", "better", "all of the RFC's list from one job of three roles, in one run")
@pytest.mark.feature("R14", "better", "the RL families of a job that learns, under one table of names")
@pytest.mark.feature(
    "F22", "better", "reward fell because a generator served an old version: caused, by counts of links"
)
@pytest.mark.feature("F8", "better", "trainer, generators and replay buffer, as Ray actors, are one run")
def test_a_job_of_three_roles_learns_and_its_run_shows_all_that_is_wrong(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "async_rl.py"],
        cwd=tmp_path,
        env=environment(OTEL_ML_EXPORTERS="jsonl"),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert re.search(r"^slow: generator 1 ", said, re.MULTILINE), said
    assert re.search(r"^stale: generator 2 ", said, re.MULTILINE), said
    assert float(re.findall(r"^without it: ([\d.]+) versions newer$", said, re.MULTILINE)[0]) >= 1.0, said
    stale = "Rank 2 of role 'generator' is stale since step"
    assert done.stderr.count(stale) == 1, "rank 0 of every role would print it, and one does"
    assert re.search(r"^failures: 1, recovered in 0\.\d*[1-9]", said, re.MULTILINE), said
    before, after = map(float, re.findall(r"^reward: ([\d.]+) → ([\d.]+)$", said, re.MULTILINE)[0])
    assert after > before + 0.15, said
    why = " ".join(said.partition("recovered in")[2].split())
    assert re.search(r"rl/sample/reward fell (at|by and by from) step \d+", why), said
    # Its samples make the policy worse, too: where that is more than a fifth of the fall, they did not cause all of it.
    caused = r"Caused: the samples of generator 2 had [\d.]+ instead of [\d.]+: it served version 0 since"
    assert re.search(rf"{caused}|[5-7]\d(\.\d)? % of it goes with the samples of generator 2, not all:", why), said
    assert "generator 0" not in why, said

    shown = otel_ml.read(the_run_in(tmp_path / "otel-ml-runs"))
    bare = {re.sub(r"^(generator/rollout|replay_buffer)/|/replica/\w+|/reason/\w+", "", name) for name in shown}
    histograms = {"rl/sample/sequence_length/distribution"}  # a record of its own, not a scalar
    assert {row.measure.name for row in rl.ROWS} - histograms - bare == set()
    assert shown["rl/train/advantage"][0] == list(range(110))
    assert shown["consumed/samples"] == (list(range(110)), [96.0] * 110), "each sample is known"
    spans = {ids(span): span for span in map(json.loads, spans_of(tmp_path / "otel-ml-runs"))}
    links = [(span, link) for span in spans.values() if span["role"] == "trainer" for link in span.get("links", ())]
    producers = {(spans[ids(link)]["role"], spans[ids(link)]["rank"]) for _, link in links}
    assert producers == {("generator", 0), ("generator", 1), ("generator", 2)}, "each link leads to a span of the run"
    assert all(spans[ids(link)]["start_ns"] <= span["end_ns"] for span, link in links)
    assert "lost" not in done.stderr.replace("0 lost", "")

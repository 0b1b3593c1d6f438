"""`otel-ml mcp`, asked by the client of the official `mcp` package in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_ml.wire.versions import own_version
from otel_ml_exporters.records import Span, SpanBatch
from otel_ml_service.storage.outbox import Outbox
from tests.recorded_run import write_run
from tests.unit.otel_ml_service.cli.program import environment
from tests.unit.otel_ml_service.why.jobs import finding, job, numbered

SPANS = SpanBatch(
    0,
    [
        Span("aa", f"b{rank}", None, "forward", 1_000, 1_000 + 5_000_000 * (rank + 1), "trainer", rank, "step", 85)
        for rank in range(4)
    ],
)
SLOW = job(
    slow=range(80, 120),
    extra_s=0.015,
    findings=[finding(since=80, until=119, extra_s=0.0149)],
    values=lambda step: {"loss": float("nan") if step == 100 else 1.0 / (step + 1)},
    more=[SPANS],
)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs", "01slow", SLOW)
    write_run(tmp_path / "runs", "02plain", job())
    return tmp_path / "runs"


def asked(base: Path, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.integration.mcp_client", str(base), json.dumps(calls)]
    done = subprocess.run(command, env=environment(base), capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def contents(base: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(base.rglob("*")) if path.is_file()}


def test_an_agent_finds_the_slow_rank_with_tools_that_only_read(base: Path) -> None:
    before = contents(base)

    found = asked(
        base,
        ("runs", {}),
        ("why", {"run": "01slow"}),
        ("why", {"run": "01slow", "first": 90}),
        ("series", {"run": "01slow", "names": ["time/exposed/forward", "loss"], "first": 100, "last": 101}),
        ("series", {"run": "01slow"}),
        ("diff", {"a": "02plain", "b": "01slow"}),
        ("spans", {"run": "01slow", "step": 85, "rank": 2, "name": "for*"}),
    )

    assert found["version"] == own_version()
    assert found["tools"] == dict.fromkeys(["runs", "series", "why", "diff", "spans"], True)
    assert [answer["is_error"] for answer in found["answers"]] == [False] * 7
    runs, why, of_step, series, listed, diff, spans = (json_of(answer) for answer in found["answers"])
    assert {run["id"] for run in runs} == {"01slow", "02plain"}
    assert (why["verdict"], why["first"], why["last"]) == ("caused", 80, 119)
    assert why["account"][0]["rank"] == 2
    assert (of_step["verdict"], of_step["first"], of_step["last"]) == ("caused", 90, 90)
    assert series[0]["steps"] == [100, 101]
    assert series[0]["values"][0] == pytest.approx(0.025, rel=0.05)
    assert series[1]["values"] == ["nan", pytest.approx(1 / 102)]
    assert {"loss", "time/forward"} <= {one["name"] for one in listed}
    assert diff["sentences"][0].startswith("B is slower")
    assert [(span["rank"], span["seconds"]) for span in spans] == [(2, 0.015)]
    assert contents(base) == before


def json_of(answer: dict[str, Any]) -> Any:
    content = answer["content"]
    return content["result"] if isinstance(content, dict) and set(content) == {"result"} else content


def test_what_is_not_there_is_answered_with_what_there_is(base: Path) -> None:
    found = asked(
        base, ("why", {"run": "03none"}), ("why", {"run": "01slow", "metric": "lost"}), ("runs", {"limit": 1})
    )

    none, metric, after = found["answers"]
    assert none["is_error"]
    assert "01slow" in none["text"]
    assert metric["is_error"]
    assert "'loss'" in metric["text"]
    assert not after["is_error"]  # and the server goes on


def test_a_run_that_goes_on_is_answered(base: Path) -> None:
    run = write_run(base, "03live", numbered(SLOW[:-1]))

    with closing(Outbox(run.database)):
        found = asked(
            base, ("why", {"run": "03live"}), ("spans", {"run": "03live", "rank": 1}),
            ("diff", {"a": "02plain", "b": "03live"}),
        )  # fmt: skip

    why, spans, diff = (json_of(answer) for answer in found["answers"])
    assert why["verdict"] == "caused"
    assert any("the run goes on" in one["text"] for one in why["evidence"])
    assert [span["name"] for span in spans] == ["forward"]
    assert diff["sentences"][0].startswith("B is slower")
    assert "Caused in B: rank 2 was slow in forward" in diff["sentences"][1]


def test_without_its_package_it_says_what_to_install(base: Path) -> None:
    program = "import sys; sys.modules['mcp'] = None; from otel_ml_service.cli import main; sys.exit(main(['mcp']))"

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(base), capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 1
    assert "pip install 'otel-ml[mcp]'" in done.stderr

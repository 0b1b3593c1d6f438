"""`OTEL_ML_FINDINGS=off`, or a defect of ours: nobody is looked at, and all that ranks record is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_ml_service.aggregation.settings import EngineSettings
from otel_ml_service.config import ServiceConfig
from otel_ml_service.findings.finding import Finding
from otel_ml_service.findings.step_findings import StepFindings
from tests.strategies import Service
from tests.unit.otel_ml_service.findings.served_ranks import ranks_of, steps


def slow_job(settings: EngineSettings) -> Service:
    service, ranks = Service(settings), ranks_of(4)
    for step in range(40):
        for one in ranks:
            taken = 2.0 if one.writer.rank == 2 and step >= 10 else 1.0
            service.take(one.step(step, {"time/forward": taken, "time/backward": 1.0}, "sum>max"))
        service.wait(1, *ranks)
    service.take(*[rank.bye("finished") for rank in ranks])
    service.wait(700)
    return service


def test_nothing_is_looked_for_published_or_said():
    on, off = slow_job(EngineSettings()), slow_job(EngineSettings(findings=False))

    assert any("is slow" in notice for notice in on.notices)
    assert {kind for row in on.rows(own=True).values() for kind in row if "straggler" in kind or "exposed" in kind}
    assert off.notices == []
    assert off.engine.findings == []
    assert {name for row in off.rows(own=True).values() for name in row} == {"time/forward", "time/backward"}
    assert {type(record).__name__ for record in on.records} - {type(record).__name__ for record in off.records} == {
        "Table",
        "Image",
    }


def test_what_was_found_before_it_was_switched_off_is_not_told_again():
    service, ranks = Service(EngineSettings()), ranks_of(4)
    steps(service, ranks, range(10))
    steps(service, ranks, range(10, 20), slow=2)
    assert service.engine.findings

    service.settings = EngineSettings(findings=False)
    service.restart()

    assert service.engine.findings == []


@pytest.mark.parametrize(("said", "is_on"), [("off", False), ("OFF", False), ("on", True)])
def test_the_variable_and_the_file_switch_it(tmp_path: Path, said: str, is_on: bool):
    file = tmp_path / "otel-ml.yaml"
    file.write_text(f"findings: {said}\n")

    assert ServiceConfig.load(environ={"OTEL_ML_FINDINGS": said}).findings is is_on
    assert ServiceConfig.load(environ={}, file=file).findings is is_on
    assert ServiceConfig.load(environ={}).findings is True


def test_a_defect_in_what_is_found_takes_no_value_with_it_and_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    step_of = StepFindings.step

    def defective(self: StepFindings, step: int, *given: Any) -> list[Finding]:
        return [] if 1 // (step - 20) else step_of(self, step, *given)

    monkeypatch.setattr(StepFindings, "step", defective)
    on, off = slow_job(EngineSettings()), slow_job(EngineSettings(findings=False))

    names = ("time/forward", "time/backward")
    assert [[row[name] for name in names] for row in on.rows().values()] == [
        [row[name] for name in names] for row in off.rows().values()
    ]
    [said] = [notice for notice in on.notices if "internal-error" in notice]
    assert "ZeroDivisionError" in said
    assert "test_switched_off.py" in said
    assert on.engine.status.state == "finished"
    on.restart()

"""The alert rules and the dashboard of `monitoring/` ask for names and labels that a service answers with."""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_ml_exporters import PermanentExportError, Record
from otel_ml_exporters.testing import RecordingExporter
from tests.deployment.test_alerts import promtool
from tests.docs.page import blocks_of
from tests.e2e.jobs import ROOT
from tests.integration.conftest import Bench
from tests.otlp import FakeWriter
from tests.waiting import eventually

MONITORING = ROOT / "monitoring"
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
PAGE = ROOT / "docs/operations.md"
[SCRAPE] = [
    yaml.safe_load(block.code) for block in blocks_of(PAGE) if block.argument == "tests/integration/test_monitoring.py"
]
NAME = re.compile(r"\botel_ml_\w+")


class Refusing(RecordingExporter):
    def export(self, records: Sequence[Record]) -> None:
        raise PermanentExportError("no room.")


def answered_of_a_job(bench: Bench) -> bytes:
    """Return `/metrics` after a job in which everything went wrong once."""
    sender, writer = bench.sender(bench.service({"refusing": Refusing})), FakeWriter()
    stranger = bench.sender(bench.services[0], "another-token")
    sender.send("metrics", writer.step(0, {"loss": 1.0}))
    wrong = writer.step(1, {"loss": 1.0})
    wrong.resource_metrics[0].scope_metrics[0].scope.attributes[0].value.int_value = -1
    sender.send("metrics", wrong)
    sender.send("metrics", b"\xff")
    stranger.send("metrics", writer.step(0, {"loss": 1.0}))
    sender.send("logs", writer.goodbye(dropped={"spool_full": 7}))
    eventually(lambda: (run := sender.run()) and run["exporters"]["refusing"]["state"] == "stopped")
    return sender.request("GET", "/metrics").body


def labels_in(scrape: bytes) -> dict[str, set[str]]:
    """Return name → labels."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in scrape.decode().splitlines():
        if not line.startswith("#"):
            found[line.partition("{")[0].partition(" ")[0]] |= set(re.findall(r'(\w+)="', line))
    return found


def expressions() -> list[str]:
    panels: list[Any] = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [*(rule["expr"] for rule in RULES), *panels, DASHBOARD["templating"]["list"][1]["query"]]


def test_every_metric_and_label_that_is_asked_for_is_in_what_a_service_answers(bench: Bench) -> None:
    answered = labels_in(answered_of_a_job(bench))

    for expression in expressions():
        names = set(NAME.findall(expression))
        assert names <= set(answered), expression
        grouped = {label for labels in re.findall(r"by \((.*?)\)", expression) for label in labels.split(", ")}
        chosen = set(re.findall(r"[{,](\w+)=~", expression))
        assert grouped | chosen <= set().union(*(answered[name] for name in names)), expression


def test_what_a_message_says_of_an_alert_is_a_label_of_its_metric(bench: Bench) -> None:
    answered = labels_in(answered_of_a_job(bench))

    for rule in RULES:
        said = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) - {"instance"}
        assert said <= set().union(*(answered[name] for name in NAME.findall(rule["expr"]))), rule["alert"]


def test_the_page_says_of_each_alert_what_to_do() -> None:
    told = re.findall(r"^\| `(OtelMl\w+)` \|", PAGE.read_text(), re.MULTILINE)

    assert told == [rule["alert"] for rule in RULES]


def test_the_job_of_the_page_and_of_the_chart_is_the_one_that_the_rules_ask_for() -> None:
    [asked] = {job for rule in RULES for job in re.findall(r'job="(\w+)"', rule["expr"])}
    [scraped] = SCRAPE["scrape_configs"]
    chart = (ROOT / "deploy" / "helm" / "otel-ml" / "templates" / "service-monitor.yaml").read_text()

    assert scraped["job_name"] == asked
    assert f"{{targetLabel: job, replacement: {asked}}}" in chart


@pytest.mark.full  # `.ci/kubernetes` has brought promtool
def test_the_scrape_job_of_the_page_is_one_for_prometheus(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token")
    shutil.copy(MONITORING / "alerts.yaml", tmp_path / "otel-ml-alerts.yaml")
    written = re.sub(r"/etc/(?:otel-ml|prometheus)/", f"{tmp_path}/", yaml.safe_dump(SCRAPE))
    (tmp_path / "prometheus.yml").write_text(written)

    promtool("check", "config", tmp_path / "prometheus.yml")


@pytest.mark.full  # `.ci/kubernetes` has brought promtool
def test_a_scrape_of_a_job_in_which_everything_went_wrong_is_what_prometheus_takes(bench: Bench) -> None:
    promtool("check", "metrics", given=answered_of_a_job(bench))

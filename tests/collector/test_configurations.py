"""Every shipped configuration is valid, and none has a component that breaks exactness."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.collector.pipeline import CONFIG, OTELCOL, collector_command
from tests.e2e.jobs import environment

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

TOGETHER = {
    "agent": ("agent",),
    "gateway": ("gateway",),
    "scale-out": ("scale-out",),
    "record": ("gateway", "record"),
    "secure": ("gateway", "secure"),
    "secure-agent": ("agent", "secure"),
    "secure-scale-out": ("scale-out", "secure-scale-out"),
    "token": ("gateway", "token"),
    "everything": ("gateway", "record", "secure"),
}

BREAKS_EXACTNESS = {
    "batch": "acknowledges before the data is stored, and swallows errors; use sending_queue.batch",
    "interval": "keeps the newest point of a stream only, or accumulates deltas, by version",
    "deltatocumulative": "makes a stream of every step, and drops what comes out of order",
    "delta_to_cumulative": "the same",
    "cumulativetodelta": "drops the first point; the service does that with a state that survives",
    "cumulative_to_delta": "the same",
    "metricstransform": "aggregates within one batch only",
    "metrics_transform": "the same",
    "transform": "may aggregate within one batch only",
    "groupbyattrs": "removes attributes that tell points apart",
    "group_by_attributes": "the same",
    "spanmetrics": "aggregates in windows of the wall clock",
    "tail_sampling": "drops spans",
    "probabilistic_sampler": "drops spans",
    "prometheus": "as an exporter keeps the newest point only",
    "prometheusremotewrite": "the same",
}


def files() -> list[Path]:
    return sorted(path for path in CONFIG.glob("*.yaml") if path.name != "builder.yaml")


def values_of(folder: Path) -> dict[str, str]:
    """Return a value for every variable that the configurations name and that has no default."""
    names = {name for path in files() for name in re.findall(r"\$\{env:(\w+)\}", path.read_text())}
    values = dict.fromkeys(names, "127.0.0.1:1")
    paths = {name: str(folder / name) for name in names if name.startswith(("OTEL_ML_TLS", "OTEL_ML_REC", "OTEL_ML_Q"))}
    return {**values, **paths, "OTEL_ML_EXPERIMENT_ID": "a-run", "OTEL_ML_TOKEN": "secret"}


@pytest.mark.parametrize("configs", TOGETHER.values(), ids=TOGETHER)
def test_a_shipped_configuration_is_valid(configs: tuple[str, ...], tmp_path: Path) -> None:
    binary, *arguments = collector_command(*configs)

    done = subprocess.run(
        [str(part) for part in (binary, "validate", *arguments)],
        env=environment(**values_of(tmp_path)), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


def test_every_configuration_is_validated() -> None:
    assert {config for configs in TOGETHER.values() for config in configs} == {path.stem for path in files()}


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_no_configuration_has_a_component_that_breaks_exactness(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    used = {
        name.partition("/")[0]: kind
        for kind in ("processors", "exporters", "connectors")
        for name in content.get(kind) or {}
    }

    assert {name: why for name, why in BREAKS_EXACTNESS.items() if name in used} == {}


def test_the_manifest_builds_no_component_that_breaks_exactness() -> None:
    manifest = yaml.safe_load((CONFIG / "builder.yaml").read_text())
    modules = [
        entry["gomod"].split()[0].rpartition("/")[2]
        for kind in ("processors", "exporters", "connectors")
        for entry in manifest.get(kind, [])
    ]

    forbidden = [
        name for name in BREAKS_EXACTNESS if any(module.startswith(name.replace("_", "")) for module in modules)
    ]
    assert forbidden == []


@pytest.mark.parametrize("stems", TOGETHER.values(), ids=TOGETHER)
def test_every_exporter_to_the_next_hop_has_a_durable_queue_and_never_gives_up(stems: tuple[str, ...]) -> None:
    exporters: dict[str, dict[str, Any]] = {}
    for stem in stems:
        for name, said in (yaml.safe_load((CONFIG / f"{stem}.yaml").read_text()).get("exporters") or {}).items():
            exporters.setdefault(name, {}).update(said)  # as the Collector merges them
    sending = [said for name, said in exporters.items() if name.startswith(("otlp", "load_balancing"))]

    assert sending
    for exporter in sending:
        assert exporter["sending_queue"]["storage"].startswith("file_storage")
        assert exporter["retry_on_failure"]["max_elapsed_time"] == 0
        assert exporter["retry_on_failure"]["max_interval"] == "5s"


def test_every_configuration_and_component_is_explained() -> None:
    page = (CONFIG / "README.md").read_text()
    modules = re.findall(r"gomod: \S+/(\w+) v", (CONFIG / "builder.yaml").read_text())

    assert [path.name for path in files() if f"`{path.name}`" not in page] == []
    assert [module for module in modules if f"`{module}`" not in page] == []


def test_an_invalid_configuration_is_refused_with_the_file_and_the_key_named(tmp_path: Path) -> None:
    wrong = tmp_path / "mine.yaml"
    wrong.write_text((CONFIG / "gateway.yaml").read_text().replace("sending_queue:", "sending_qeue:"))

    done = subprocess.run(
        [CONFIG / "start", wrong],
        env=environment(OTELCOL=OTELCOL, **values_of(tmp_path)),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 1
    assert "mine.yaml" in done.stderr
    assert "sending_qeue" in done.stderr

"""Ray's own measurements of every node of a cluster, asked for by the driver."""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from otel_ml.diagnostics.hardware.source import Reading, UnavailableError
from otel_ml.warn_once import reporter

__all__ = ["RayNodes", "node_readings"]

TIMEOUT = 5.0
"""Seconds that one node may take to answer; the others are asked meanwhile."""

MOST_BYTES = 64 * 2**20
"""What is read of one answer: a node with thousands of workers says some MB."""

_MB = 2**20
_SAMPLE = re.compile(r"^(ray_node_\w+)\{([^}]*)\} (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_NAMES: Mapping[str, tuple[str, float]] = {
    "ray_node_gpus_utilization": ("hw.gpu.utilization", 0.01),
    "ray_node_gram_used": ("hw.gpu.memory.usage", _MB),
    "ray_node_gpu_power_milliwatts": ("hw.power", 1e-3),
    "ray_node_gpu_temperature_celsius": ("hw.temperature", 1.0),
    "ray_node_mem_used": ("system.memory.usage", 1.0),
    "ray_node_mem_total": ("system.memory.limit", 1.0),
    "ray_node_cpu_utilization": ("system.cpu.utilization", 0.01),
}
"""Ray's name → ours and what turns its unit into ours."""


class RayNodes:
    """All nodes of the cluster this process is connected to; a `Source`.

    Raises:
        UnavailableError: this process is connected to none.
    """

    def __init__(self) -> None:
        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            raise UnavailableError("this process is not connected to Ray (call ray.init() first)")
        self._ray = ray
        # A node is asked on its own address: no proxy of the environment is in between.
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    @property
    def facts(self) -> Mapping[str, object]:
        """The number of nodes at the start."""
        return {"ray_nodes": len(self._addresses())}

    def read(self) -> Iterator[Reading]:
        """Yield the readings of all nodes that answer; each node and GPU counts once."""
        addresses = self._addresses()
        if not addresses:
            return
        # Side by side: nodes that do not answer are waited for once, and not one after the other.
        with ThreadPoolExecutor(min(16, len(addresses)), thread_name_prefix="otel_ml_ray") as pool:
            for node, text in pool.map(self._asked, addresses.items()):
                yield from node_readings(node, text)

    def close(self) -> None:
        """Nothing is open."""

    def _addresses(self) -> dict[str, str]:
        """Return host → URL: a cluster that was restarted lists a node more than once."""
        nodes: Iterable[Mapping[str, object]] = self._ray.nodes()
        return {
            str(node["NodeManagerAddress"]): f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
            for node in nodes
            if node.get("Alive") and node.get("MetricsExportPort")
        }

    def _asked(self, address: tuple[str, str]) -> tuple[str, str]:
        node, url = address
        try:
            with self._open(url, timeout=TIMEOUT) as answer:
                return node, answer.read(MOST_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            reporter.say(
                "hardware-lost", f"Ray's node {node} does not answer on {url}: {error}. The others are measured."
            )
            # Without readings, as of a node that says nothing: the pool's results are one for each address.
            return node, ""


def node_readings(node: str, text: str) -> Iterator[Reading]:
    """Yield what a node says of itself in Prometheus' text format, each value once.

    Examples:
        >>> text = 'ray_node_gpus_utilization{GpuIndex="0",ip="10.0.0.1"} 50.0'
        >>> list(node_readings("10.0.0.1", text + chr(10) + text))
        [Reading(name='hw.gpu.utilization', value=0.5, attributes={'host.name': '10.0.0.1', 'hw.id': 'gpu0'})]
    """
    seen: set[tuple[str, str]] = set()
    for ray_name, labels, number in _SAMPLE.findall(text):
        if ray_name not in _NAMES:
            continue
        name, factor = _NAMES[ray_name]
        gpu = dict(_LABEL.findall(labels)).get("GpuIndex", "")
        try:
            value = float(number) * factor
        except ValueError:
            continue
        if value != value or (name, gpu) in seen:  # a node that does not know says NaN
            continue
        seen.add((name, gpu))
        attributes = {"host.name": node, **({"hw.id": f"gpu{gpu}"} if gpu else {})}
        yield Reading(name, value, {**attributes, "hw.type": "gpu"} if name == "hw.power" else attributes)

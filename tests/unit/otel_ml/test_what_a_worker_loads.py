"""A worker loads what only mistakes, rank 0 or other systems need where they need it: its memory is the program's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.otlp_server import otlp_server

_NEEDLESS = ("ctypes", "difflib", "email", "html", "importlib.metadata", "secrets", "uuid")
_PROGRAM = """
import json, sys
before = set(sys.modules)
import otel_ml
otel_ml.init("memory", id="memory-1")
otel_ml.log({"loss": 1.0}, step=1)
with otel_ml.timed("forward"): pass
otel_ml.flush(30)
print(json.dumps(sorted(set(sys.modules) - before)))
otel_ml.shutdown()
"""


def test_a_worker_that_makes_no_mistake_loads_nothing_for_mistakes() -> None:
    with otlp_server() as server:
        env = os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_ML_MODE": "remote"}
        env |= {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
        done = subprocess.run([sys.executable, "-c", _PROGRAM], env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert "otel_ml._internal.transport.http" in loaded
    assert [module for module in _NEEDLESS if module in loaded] == []

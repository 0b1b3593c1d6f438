from __future__ import annotations

import os
import shutil
import subprocess
import time

import pytest

from otel_ml._internal.identity.started_by_ps import started_ns_by_ps

pytestmark = pytest.mark.skipif(shutil.which("ps") is None, reason="there is no ps")


def test_a_process_started_when_ps_says_whatever_the_zone_and_the_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with subprocess.Popen(["sleep", "60"]) as process:
        now = time.time()
        found = [started_ns_by_ps(process.pid) for _ in range(2)]
        process.kill()

    assert found[0] == found[1]
    assert found[0] % 10**9 == 0
    assert abs(found[0] / 1e9 - now) < 5


def test_of_a_process_that_there_is_not_it_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started_ns_by_ps(2**22 + 1) == 0
    monkeypatch.setenv("PATH", "")
    assert started_ns_by_ps(os.getpid()) == 0

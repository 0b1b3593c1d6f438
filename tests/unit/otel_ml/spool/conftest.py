from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml._internal.transport.spool import Spool


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def spool(tmp_path: Path, said: list[str]) -> Spool:
    return Spool(tmp_path, "writer", b"resource", limit=64 * 1024, say=lambda _slug, sentence: said.append(sentence))

from __future__ import annotations

from pathlib import Path

import pytest

from otel_ml._internal.transport.send import Sender
from otel_ml._internal.transport.spool import Spool
from tests.unit.otel_ml.send.receiver import Clock, Receiver


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def sender(tmp_path: Path, receiver: Receiver, clock: Clock, said: list[str]) -> Sender:
    spool = Spool(tmp_path, "w", b"resource", limit=2**26, say=lambda _slug, sentence: said.append(sentence))
    sender = Sender(spool, b"resource", say=lambda _slug, sentence: said.append(sentence), clock=clock)
    sender.transport = receiver
    return sender

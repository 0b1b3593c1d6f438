"""What a newer otel_ml has stored is left as it is, and said by name."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml._internal.transport.answer import Answer
from otel_ml._internal.transport.embedded import EmbeddedLink
from otel_ml._internal.transport.recover_spools import recover_spools
from otel_ml.config import Config
from otel_ml.exceptions import VersionError, WireError
from otel_ml.wire.rendezvous import Rendezvous, Service, rendezvous_of
from otel_ml.wire.spool_format import HEADER, read_spool
from otel_ml.wire.versions import RENDEZVOUS, SPOOL
from tests.otlp import FakeWriter, write_spool

NEWER_SPOOL = b"otel_ml spool %d 9.1.0\n" % (SPOOL + 1)


class Taking:
    """A receiver that takes everything."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def post(self, path: str, body: bytes, timeout: float) -> Answer:
        self.bodies.append(body)
        return Answer("ok")

    def close(self) -> None:
        pass


def spool(path: Path, header: bytes = HEADER) -> Path:
    write_spool(path, FakeWriter(instance=path.stem), range(2))
    path.write_bytes(header + path.read_bytes().removeprefix(HEADER))
    return path


def test_a_spool_of_a_newer_version_stays_and_is_said_by_name_and_the_others_are_sent(tmp_path: Path) -> None:
    newer, other = spool(tmp_path / "a.spool", NEWER_SPOOL), spool(tmp_path / "b.spool")
    before = newer.read_bytes()
    receiver, said = Taking(), dict[str, str]()

    is_done = recover_spools(tmp_path, receiver, time.monotonic() + 10, said.__setitem__)

    assert not is_done
    assert len(receiver.bodies) == 1
    assert newer.read_bytes() == before
    assert not other.exists()
    assert f"was written by otel_ml 9.1.0, in version {SPOOL + 1} of its form" in said["other-version"]


@pytest.mark.parametrize("content", [b"", HEADER[:7], HEADER])
def test_a_spool_whose_writer_was_killed_at_its_beginning_holds_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.spool"
    path.write_bytes(content)

    assert read_spool(path).frames == ()


def test_a_spool_with_a_damaged_beginning_is_not_deleted_as_an_empty_one(tmp_path: Path) -> None:
    damaged = spool(tmp_path / "a.spool", b"otel-ml spool 1\n")
    said = dict[str, str]()

    assert not recover_spools(tmp_path, Taking(), time.monotonic() + 10, said.__setitem__)

    assert damaged.exists()
    assert "does not begin as a spool of otel_ml does" in said["damaged-data"]
    with pytest.raises(WireError):
        read_spool(damaged)


def newer(path: Path) -> None:
    content = {"version": RENDEZVOUS + 1, "writer": "9.1.0", "endpoint": ["another form"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | content))


@pytest.mark.parametrize("read", [Rendezvous.read_service, Rendezvous.read_home])
def test_a_service_that_an_older_process_cannot_follow_is_named(
    tmp_path: Path, read: Callable[[Rendezvous], object]
) -> None:
    place = Rendezvous(tmp_path / "otel-ml" / "run")
    place.create()
    place.publish(Service("http://127.0.0.1:1", "secret", 1, str(tmp_path)))
    newer(place.service_file)
    newer(place.run_file)

    with pytest.raises(VersionError, match=r"was written by otel_ml 9\.1\.0, in version 2 of its form") as raised:
        read(place)

    assert "secret" not in str(raised.value)


def test_files_of_the_first_version_which_did_not_say_it_are_read(tmp_path: Path) -> None:
    place = Rendezvous(tmp_path / "otel-ml" / "run")
    place.create()
    place.service_file.write_text('{"endpoint": "http://[::1]:1", "token": "t", "pid": 7, "run_dir": "/r"}')
    place.run_file.write_text('{"run_dir": "/r", "exporters": ["jsonl"]}')

    service, home = place.read_service(), place.read_home()

    assert service is not None
    assert home is not None
    assert (service.pid, home.exporters) == (7, ("jsonl",))


def test_beside_a_service_that_it_cannot_follow_a_process_starts_none_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    place = rendezvous_of("one")
    place.create()
    place.publish(Service("http://127.0.0.1:1", "secret", 1, str(tmp_path)))
    newer(place.service_file)
    said = dict[str, str]()
    link = EmbeddedLink(Config(dir=tmp_path / "runs"), "one", say=said.__setitem__)

    for now in (0.0, 10.0, 100.0):
        assert link.reach(now, failing_s=now) is None

    assert not link.is_starting
    assert not (tmp_path / "runs").exists()
    assert "otel_ml 9.1.0" in said["other-version"]
    assert "kept on this host" in said["other-version"]

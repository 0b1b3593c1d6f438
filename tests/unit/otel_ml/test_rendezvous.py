from __future__ import annotations

import fcntl
import hashlib
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from otel_ml._internal.transport.spool import Spool
from otel_ml.wire.rendezvous import Home, Rendezvous, Service, boot_id, passed_over, path_part, rendezvous_of
from otel_ml.wire.spool_format import Frame


@pytest.fixture
def rendezvous(tmp_path: Path) -> Rendezvous:
    found = Rendezvous(tmp_path / "otel-ml-0" / "run")
    found.create()
    return found


def test_one_process_at_a_time_has_the_lock(rendezvous: Rendezvous) -> None:
    first = rendezvous.acquire()
    assert first is not None
    assert rendezvous.acquire() is None
    os.close(first)

    again = rendezvous.acquire()

    assert again is not None
    os.close(again)


def test_a_folder_in_which_nothing_is_left_is_removed(rendezvous: Rendezvous) -> None:
    os.close(rendezvous.acquire() or -1)

    assert rendezvous.remove()
    assert not rendezvous.folder.exists()


def _keep_a_spool(rendezvous: Rendezvous) -> object:
    return (rendezvous.spool / "writer-000000.spool").write_bytes(b"")


def _announce(rendezvous: Rendezvous) -> object:
    return rendezvous.publish(Service("http://127.0.0.1:1", "", 1, ""))


def _be_starting(rendezvous: Rendezvous) -> object:
    return rendezvous.acquire()


@pytest.mark.parametrize("use", [_keep_a_spool, _announce, _be_starting])
def test_a_folder_that_is_in_use_stays(rendezvous: Rendezvous, use: Callable[[Rendezvous], object]) -> None:
    use(rendezvous)

    assert not rendezvous.remove()
    assert rendezvous.folder.is_dir()


def test_the_lock_of_a_folder_that_was_removed_gives_no_right(rendezvous: Rendezvous) -> None:
    old = os.open(rendezvous.lock, os.O_RDWR | os.O_CREAT)
    assert rendezvous.remove()

    fresh = rendezvous.acquire()

    assert fresh is not None
    assert os.fstat(fresh).st_ino == rendezvous.lock.stat().st_ino
    os.close(old)
    os.close(fresh)


def test_a_worker_that_starts_while_the_folder_is_removed_keeps_its_spool_on_disk(rendezvous: Rendezvous) -> None:
    said: list[str] = []
    stop = threading.Event()

    def remove() -> None:
        while not stop.is_set():
            rendezvous.remove()

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        for number in range(2000):
            spool = Spool(
                rendezvous.spool,
                f"writer-{number}",
                b"resource",
                limit=2**20,
                say=lambda _slug, sentence: said.append(sentence),
            )
            spool.append(Frame("M", b"metrics"))
            assert list(rendezvous.spool.glob(f"writer-{number}-*.spool"))
            spool.delete()
    finally:
        stop.set()
        remover.join()

    assert said == []


SERVICE = Service("http://127.0.0.1:4318", "secret", 7, "/runs/a", ("jsonl", "wandb/b"))


def test_a_service_is_there_as_long_as_its_announcement_is_held(rendezvous: Rendezvous) -> None:
    assert not rendezvous.is_served()

    handle = rendezvous.publish(SERVICE)

    assert rendezvous.is_served()
    assert rendezvous.read_service() == SERVICE
    assert rendezvous.read_home() == Home("/runs/a", ("jsonl", "wandb/b"))
    os.close(handle)
    assert not rendezvous.is_served()
    assert rendezvous.read_service() == SERVICE  # what it said is still there: its run may have to be recovered
    assert {path.name for path in rendezvous.folder.iterdir()} == {"run.json", "service.json", "spool"}
    assert {path.stat().st_mode & 0o077 for path in rendezvous.folder.iterdir()} == {0}


def test_a_link_in_the_place_of_the_announcement_is_no_service(rendezvous: Rendezvous, tmp_path: Path) -> None:
    with (tmp_path / "held").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        rendezvous.service_file.symlink_to(tmp_path / "held")

        assert not rendezvous.is_served()


def test_what_a_service_said_of_its_run_outweighs_what_a_later_process_asks_for(rendezvous: Rendezvous) -> None:
    assert rendezvous.read_home() is None
    rendezvous.ask_for(Home("/runs/asked"))
    rendezvous.ask_for(Home("/runs/asked-again"))
    assert rendezvous.read_home() == Home("/runs/asked")
    os.close(rendezvous.publish(SERVICE))

    rendezvous.ask_for(Home("/runs/another"))

    assert rendezvous.read_home() == Home("/runs/a", ("jsonl", "wandb/b"))


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"pid": "x"}', "[" * 100_000, '{"version": 1e999}'])
def test_what_nobody_wrote_is_no_service_and_no_run(rendezvous: Rendezvous, content: str) -> None:
    rendezvous.service_file.write_text(content)
    rendezvous.run_file.write_text(content)

    assert (rendezvous.read_service(), rendezvous.read_home()) == (None, None)


def test_what_is_no_text_is_no_service_and_no_run(rendezvous: Rendezvous) -> None:
    rendezvous.create()
    rendezvous.service_file.write_bytes(b"\xff\xfe{}")
    rendezvous.run_file.write_bytes(b"\xff\xfe{}")

    assert rendezvous.read_service() is None
    assert rendezvous.read_home() is None


def test_a_folder_that_others_could_read_is_closed_when_it_is_used(rendezvous: Rendezvous) -> None:
    rendezvous.folder.chmod(0o755)

    rendezvous.create()

    assert rendezvous.folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 100])
def test_a_plain_name_is_its_own_folder(name: str) -> None:
    assert path_part(name) == name


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "ü", "x" * 101, ""])
def test_every_other_name_is_one_safe_part_of_a_path_and_its_own(name: str) -> None:
    part = path_part(name)

    assert re.fullmatch(r"[A-Za-z0-9_.\-]*-[0-9a-f]{8}", part)
    assert len(part) <= 109
    assert not part.startswith(".")
    assert part != path_part(f"{name}/")


def test_processes_that_look_while_one_of_them_makes_the_folder_agree_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at what is not there, and then another process makes it: the second look would find a folder."""
    usual = tmp_path / f"otel-ml-{os.getuid()}"
    look = os.stat

    def looked(path: object, *args: object, **kwargs: object) -> object:
        try:
            return look(path, *args, **kwargs)  # type: ignore[arg-type]
        finally:
            if path == usual:
                with suppress(FileExistsError):
                    usual.mkdir(mode=0o700)

    monkeypatch.setattr(os, "stat", looked)

    assert rendezvous_of("one", {"XDG_RUNTIME_DIR": str(tmp_path)}).folder.parent == usual
    assert usual.is_dir(), "another process has made it meanwhile"


def be_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this user owns belongs to another one from here on."""
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)


@pytest.mark.parametrize("mode", [0o2775, 0o770, 0o707])
def test_a_volume_of_another_user_that_this_one_may_write_to_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    tmp_path.chmod(mode)
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert passed_over(environ) is None  # it is this user's own

    be_somebody_else(monkeypatch)

    assert passed_over(environ) == tmp_path
    assert not rendezvous_of("one", environ).folder.is_relative_to(tmp_path)


def test_a_closed_folder_of_another_user_a_file_and_one_that_is_not_there_are_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch(mode=0o666)
    tmp_path.chmod(0o755)
    be_somebody_else(monkeypatch)

    for name in (tmp_path, tmp_path / "file", tmp_path / "gone"):
        assert passed_over({"XDG_RUNTIME_DIR": str(name)}) is None


@pytest.mark.parametrize("environ", [{}, {"XDG_RUNTIME_DIR": ""}])
def test_where_no_runtime_folder_is_named_the_one_that_a_job_is_begun_in_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """A job of a team is begun in a folder of one of them that all may write to."""
    tmp_path.chmod(0o2775)
    monkeypatch.chdir(tmp_path)
    be_somebody_else(monkeypatch)

    assert passed_over(environ) is None


def test_the_folder_of_a_run_is_called_as_other_versions_call_it(tmp_path: Path) -> None:
    digest = hashlib.sha256(f"one\0{boot_id()}".encode()).hexdigest()

    found = rendezvous_of("one", {"XDG_RUNTIME_DIR": str(tmp_path)})

    assert found.folder == tmp_path / f"otel-ml-{os.getuid()}" / digest[:32]


def test_the_page_of_a_service_is_told_where_it_has_one() -> None:
    with_page = Service("http://127.0.0.1:1", "secret", 7, "/runs/a", (), "http://127.0.0.1:1/?token=read")

    assert Service.from_json(with_page.to_json()) == with_page
    assert Service.from_json(SERVICE.to_json()) == SERVICE


def test_who_looks_at_a_rendezvous_again_and_again_has_no_more_files_open(rendezvous: Rendezvous) -> None:
    lock, announced = rendezvous.acquire(), rendezvous.publish(SERVICE)
    assert lock is not None

    def look() -> int:
        assert rendezvous.is_served() == is_held
        rendezvous.ask_for(Home("/runs/asked"))
        assert rendezvous.acquire() is None
        assert not rendezvous.remove()
        return len(list(Path("/proc/self/fd").iterdir()))

    is_held = True
    assert len({look() for _ in range(3)}) == 1
    os.close(announced)
    is_held = False
    assert len({look() for _ in range(3)}) == 1
    os.close(lock)

"""Where the processes of a job on one host find their service (embedded mode).

::

    <runtime dir>/otel-ml-<uid>/<32 hex of SHA-256(experiment id, boot id)>/      0700, ours, no link
        lock            flock: who holds it starts the service, or removes the folder
        service.json    0600: version, endpoint, token, pid, run_dir, exporters; written by rename, removed at exit;
                        flock: the service holds it as long as it lives
        run.json        0600: version, run_dir, exporters of the service that was asked for, or announced, last; stays
                        as long as the folder
        spool/          one file a writer: what is not acknowledged yet
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from otel_ml.exceptions import WireError
from otel_ml.wire.folder_ownership import may_hold_ours
from otel_ml.wire.short_digest import short_digest
from otel_ml.wire.versions import RENDEZVOUS, own_version, require

__all__ = [
    "Home",
    "Rendezvous",
    "Service",
    "boot_id",
    "is_private",
    "kept_folder",
    "passed_over",
    "rendezvous_of",
    "run_folder",
    "write_private",
]

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")


def boot_id() -> str:
    """Return what distinguishes this boot of this host from all others, as far as the system tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


def run_folder(base: Path, experiment: str, run_id: str) -> Path:
    """Return `<base>/<experiment>/<id>`, each a single, safe path part.

    Where the experiment's folder is another user's, this one's runs are in `<experiment>-<user id>`.

    Examples:
        >>> run_folder(Path("runs"), "digits/small", "01JX").as_posix()
        'runs/digits_small-d3079793/01JX'
    """
    folder = base / path_part(experiment)
    if not may_hold_ours(folder):
        folder = folder.with_name(f"{folder.name}-{os.getuid()}")
    return folder / path_part(run_id)


def kept_folder(run: Path) -> Path:
    """Return where processes of a job keep large files for the service of their host, each under a random name.

    It is the service's to remove, when the run is over.
    """
    return run / "state" / "kept"


def path_part(name: str) -> str:
    """Return `name` if it can be one path part, else one that can and is unique to it."""
    clean = _UNSAFE.sub("_", name)[:100]
    # `.` and `..` would lead to other folders.
    if clean == name and name.strip("."):
        return name
    return f"{clean.strip('.')}-{short_digest(name)}"


@dataclass(frozen=True, slots=True)
class Service:
    """How to reach a running service: the content of `service.json`.

    Attributes:
        page: address of the run's page, with a token of its own, which only reads; empty where none is offered.
    """

    endpoint: str
    token: str = field(repr=False)
    pid: int
    run_dir: str
    exporters: tuple[str, ...] = ()
    page: str = field(default="", repr=False)

    def to_json(self) -> str:
        """Return the file's content."""
        return _as_json(self)

    @staticmethod
    def from_json(content: str) -> Service:
        """Parse the file's content; unknown keys are left for newer versions.

        Raises:
            VersionError: a newer otel_ml has written it, and this one cannot follow.
            WireError: something is missing or not JSON.
        """
        try:
            found = json.loads(content)
            require(Path("service.json"), int(found.get("version", 1)), RENDEZVOUS, str(found.get("writer", "")))
            return Service(
                endpoint=str(found["endpoint"]),
                token=str(found["token"]),
                pid=int(found["pid"]),
                run_dir=str(found["run_dir"]),
                exporters=tuple(str(name) for name in found.get("exporters", ())),
                page=str(found.get("page", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            # Not what it holds: the token is in it.
            raise WireError("service.json is not readable; expected endpoint, token, pid, run_dir.") from error


@dataclass(frozen=True, slots=True)
class Home:
    """Where the run is written, whoever serves it: the content of `run.json`."""

    run_dir: str
    exporters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """The rendezvous folder of one experiment on this host."""

    folder: Path

    @property
    def lock(self) -> Path:
        """The file whose `flock` gives the right to start the service."""
        return self.folder / "lock"

    @property
    def service_file(self) -> Path:
        """Address and token of the running service."""
        return self.folder / "service.json"

    @property
    def run_file(self) -> Path:
        """Where the run is written: what is left in the spools belongs there, also when no service is announced."""
        return self.folder / "run.json"

    @property
    def spool(self) -> Path:
        """Folder of the writers' spools."""
        return self.folder / "spool"

    def create(self) -> None:
        """Create the folder and its parent, readable by this user only.

        Raises:
            PermissionError: the folder exists and is somebody else's, or open to others.
        """
        for folder in (self.folder.parent, self.folder, self.spool):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not is_private(folder):
                raise PermissionError(f"{folder} is not a private folder of user {os.getuid()}. Remove it.")
            if stat.S_IMODE(folder.lstat().st_mode) & 0o077:
                folder.chmod(0o700)

    def acquire(self) -> int | None:
        """Take the lock and return its handle, which whoever closes it gives back; None where another process has it.

        Raises:
            OSError: the folder cannot be used.
        """
        try:
            self.create()
            handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except (FileNotFoundError, FileExistsError):
            return None  # the folder is being removed; it is there again at the next look
        is_ours = False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed since it was opened: its lock then excludes nobody.
            is_ours = os.fstat(handle).st_ino == self.lock.stat().st_ino
        except (BlockingIOError, FileNotFoundError):
            pass
        finally:
            if not is_ours:
                os.close(handle)
        return handle if is_ours else None

    def remove(self) -> bool:
        """Remove the folder; False where it is in use: a spool is left, a service is announced or being started.

        A process that starts meanwhile makes it anew (`acquire`, and a spool that finds no folder).
        """
        handle = None
        try:
            handle = self.acquire()
            if handle is None or self.service_file.exists():
                return False
            with suppress(FileNotFoundError):  # the last writer may have removed it
                self.spool.rmdir()
            self.run_file.unlink(missing_ok=True)
            # While it is held: whoever has opened it meanwhile sees in `acquire` that it is gone.
            self.lock.unlink()
            self.folder.rmdir()
        except OSError:
            return False
        finally:
            if handle is not None:
                os.close(handle)
        return True

    def read_service(self) -> Service | None:
        """Return the service that has announced itself, or None; in a folder of others nobody can announce himself.

        Raises:
            VersionError: there is one, of a newer otel_ml that this one cannot follow.
        """
        if not is_private(self.folder.parent):
            return None
        try:
            return Service.from_json(self.service_file.read_text())
        except (OSError, UnicodeDecodeError, WireError):
            return None

    def read_home(self) -> Home | None:
        """Return where the run is written, or None where no service was ever announced.

        Raises:
            VersionError: a newer otel_ml has written it, and this one cannot follow.
        """
        if not is_private(self.folder.parent):
            return None
        try:
            found = json.loads(self.run_file.read_text())
            require(self.run_file, int(found.get("version", 1)), RENDEZVOUS, str(found.get("writer", "")))
            return Home(str(found["run_dir"]), tuple(str(name) for name in found["exporters"]))
        except (OSError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            return None  # as good as none: nobody but a damaged disk writes it so

    def is_served(self) -> bool:
        """Whether the service that has announced itself lives.

        Its lock says so, not its pid: that may be another process' by now, or count in another namespace.
        """
        try:
            handle = os.open(self.service_file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            # Shared: two who ask at the same time must not take each other for the service.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def ask_for(self, home: Home) -> None:
        """Note where the run is to be written, before a service is started that may never announce itself.

        What an earlier service said stays: it knows better.
        """
        if self.read_home() is None:
            os.close(_write(self.run_file, _as_json(home)))

    def publish(self, service: Service) -> int:
        """Announce a service: write `run.json` and `service.json` by rename, 0600.

        Returns:
            A handle: as long as it is open, the service counts as alive.
        """
        os.close(_write(self.run_file, _as_json(Home(service.run_dir, service.exporters))))
        return _write(self.service_file, _as_json(service), is_locked=True)

    def withdraw(self, handle: int | None) -> None:
        """Take an announcement back; that of another service, which lives, stays.

        Args:
            handle: of `publish`; None where the service did not come so far: then one that was killed may be there.
        """
        with suppress(FileNotFoundError):
            found = self.service_file.stat()
            # Without a handle: unless a service lives. With one: unless another service has put its file there.
            if not self.is_served() if handle is None else os.path.samestat(found, os.fstat(handle)):
                self.service_file.unlink()


def publish(path: Path, service: Service) -> None:
    """Write a service's address to `path` by rename, readable by this user only."""
    os.close(_write(path, _as_json(service)))


def write_private(path: Path, content: str) -> None:
    """Write a file by rename, readable by this user only."""
    os.close(_write(path, content))


def _as_json(content: Service | Home) -> str:
    found = {name: value for name, value in asdict(content).items() if name != "page" or value}
    return json.dumps({"version": RENDEZVOUS, "writer": own_version(), **found})


def _write(path: Path, content: str, *, is_locked: bool = False) -> int:
    """Write a file by rename, readable by this user only; return its handle, with a lock where one is asked for."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".service-")
    try:
        rest = content.encode()
        while rest:  # a disk that has room for a part of it takes that
            rest = rest[os.write(handle, rest) :]
        # Before it has its name: who finds the file finds it locked.
        if is_locked:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(name).replace(path)
    except BaseException:
        os.close(handle)
        Path(name).unlink(missing_ok=True)
        raise
    return handle


def rendezvous_of(experiment_id: str, environ: Mapping[str, str] | None = None) -> Rendezvous:
    """Return the rendezvous of an experiment on this host (nothing is created)."""
    digest = hashlib.sha256(f"{experiment_id}\0{boot_id()}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Rendezvous(_root(os.environ if environ is None else environ) / digest)


def is_private(folder: Path) -> bool:
    """Whether `folder` is one of this user, no link, and nobody else may put anything into it."""
    try:
        return _is_closed(folder.lstat())
    except OSError:
        return False


def _is_closed(found: os.stat_result) -> bool:
    is_for_others = stat.S_IMODE(found.st_mode) & 0o022
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not is_for_others


def _root(environ: Mapping[str, str]) -> Path:
    """Return the folder of all rendezvous.

    Anybody may make a folder of any name in /tmp. One that is not private is passed, by every process of the job alike.
    """
    name = f"otel-ml-{os.getuid()}"
    given = environ.get("XDG_RUNTIME_DIR", "")
    usual = (Path(given) if given and _is_own(Path(given)) else Path("/tmp")) / name
    return usual if _may_be_ours(usual) else Path.home() / ".cache" / name


def _may_be_ours(folder: Path) -> bool:
    """Whether a folder is private, or not there yet: seen in one look, since another process may make it meanwhile."""
    try:
        return _is_closed(folder.lstat())
    except OSError:
        return True


def passed_over(environ: Mapping[str, str]) -> Path | None:
    """Return the folder that `XDG_RUNTIME_DIR` names, and this user may write to, but does not own.

    As a volume is that a container's user has by its group: who owns it can exchange what is in it. That of another
    user, which a shell of root may still name, is not meant for this one.
    """
    given = environ.get("XDG_RUNTIME_DIR", "")
    return Path(given) if given and _is_volume_of_another(Path(given)) else None


def _is_volume_of_another(folder: Path) -> bool:
    try:
        is_for_others = folder.is_dir() and bool(stat.S_IMODE(folder.stat().st_mode) & 0o022)
        return is_for_others and not _is_own(folder) and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def _is_own(folder: Path) -> bool:
    try:
        return folder.is_dir() and folder.stat().st_uid == os.getuid()
    except OSError:
        return False

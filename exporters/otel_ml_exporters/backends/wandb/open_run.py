"""Opening or resuming a run of W&B, online or offline, so that nothing is lost and nothing doubled."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_ml.exceptions import ConfigError, MissingDependencyError
from otel_ml.wire.versions import require
from otel_ml_exporters.backends.wandb import transaction_log
from otel_ml_exporters.backends.wandb.connection import Decision, decide, foreseen, kept_offline
from otel_ml_exporters.backends.wandb.errors import service_is_gone
from otel_ml_exporters.backends.wandb.names import identifier
from otel_ml_exporters.errors import RetryableExportError
from otel_ml_exporters.records import RunInfo

__all__ = ["OpenRun", "Options", "foreseen_notice", "load_wandb", "open_run", "tags_of"]

_MAX_TAG = 64
_MODES = frozenset({"online", "offline", "disabled"})
_LOGS = "wandb/offline-run-*-{}"
"""Folders of a run's offline logs, below `OTEL_ML_DIR`, by its id."""
_SECOND_POLL = 0.05
_FORM = 1
"""Of `last.json`; another one is to be written to it as `form`."""
# Lean: the service is not the training process, so its console, git, machine and packages say nothing about the run.
_SETTINGS = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "finish_timeout": 60.0,
    "finish_timeout_raises": True,
    "init_timeout": 20.0,
    "quiet": True,
    "silent": True,
    "symlink": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
    # The service process keeps rows in memory for 15 s otherwise; a crash loses them from an offline run's file.
    "x_transaction_log_flush_interval": 0.2,
}


@dataclass(frozen=True, slots=True)
class Options:
    """What the user configured; see `WandbExporter`."""

    mode: str = "auto"
    project: str | None = None
    entity: str | None = None
    group: str | None = None
    job_type: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run as `wandb.init` returned it.

    Attributes:
        run: `wandb.Run`.
        mode: `online`, `offline` or `disabled`.
        position: `seq` of the last row stored; None where W&B cannot tell.
        log: the transaction log of this process.
        notice: a sentence for a person, or None.
    """

    run: Any
    mode: str
    position: int | None
    log: Path
    notice: str | None


def load_wandb(root: Path) -> Any:
    """Import W&B, silent and without its own error reports; what the user set in the environment stays.

    Raises:
        MissingDependencyError: it is not installed.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")
    os.environ.setdefault("WANDB_DATA_DIR", str(root / "wandb" / "data"))
    os.environ.setdefault("WANDB_CACHE_DIR", str(root / "wandb" / "cache"))
    if "wandb" not in sys.modules:
        # Inherited from a training process that uses W&B itself: its `wandb-core` would end with it, and our run too.
        os.environ.pop("WANDB_SERVICE", None)
    try:
        import wandb
    except ModuleNotFoundError as error:
        raise MissingDependencyError("Exporter 'wandb'", package=error.name or "wandb", extra="wandb") from error
    with contextlib.suppress(ImportError):
        # W&B would import it lazily, at the first image: halfway through, another exporter's thread may want it, too.
        import PIL.Image  # noqa: F401
    logging.getLogger("wandb").setLevel(logging.CRITICAL)
    return wandb


def open_run(run: RunInfo, options: Options) -> OpenRun:
    """Open or resume the run `run.id`.

    Online, the server's last row decides where to go on. Offline, every process writes a file of its own; those of
    killed predecessors are repaired, and their last row decides.
    """
    root = _root(run)
    root.mkdir(parents=True, exist_ok=True)
    wandb = load_wandb(root)
    with _forgets_a_dead_service(wandb):
        settings = wandb.setup().settings
    memory, before = _memory(run), _mode_before(run)
    last = _last(memory.with_name("last.json"))  # before the run is opened: each try would leave a further log
    logs = _logs(run)
    decision = decide(options.mode, before, api_key=settings.api_key, base_url=settings.base_url, logs=logs)
    _wait_for_a_folder_of_its_own(root / "wandb", _id(run))
    opened, decision = _init(wandb, run, options, decision)
    try:
        log = Path(opened.settings.sync_file) if decision.mode != "disabled" else run.dir
        memory.parent.mkdir(parents=True, exist_ok=True)
        position = _position(opened, decision.mode, log, memory.with_name("last.json"), before, last)
        _write_whole(memory, decision.mode)
        if opened.url:
            _write_whole(memory.with_name("url"), str(opened.url))  # for `otel-ml open`
    except Exception:
        opened.finish(exit_code=1)  # else the next try finds the run in use
        raise
    return OpenRun(opened, decision.mode, position, log, decision.notice)


def foreseen_notice(run: RunInfo, options: Options) -> str | None:
    """Return why the run will be offline, where that is sure before W&B is imported."""
    return foreseen(options.mode, _mode_before(run), _logs(run))


def _memory(run: RunInfo) -> Path:
    return run.folder("wandb") / "mode"


def _mode_before(run: RunInfo) -> str | None:
    """Return in which mode the run was opened before; where what says so is damaged, its logs tell."""
    memory = _memory(run)
    if not memory.exists():
        return None
    said = memory.read_text(errors="replace").strip()
    if said in _MODES:
        return said
    return "offline" if any(_root(run).glob(_LOGS.format(_id(run)))) else None


def _last(memory: Path) -> Mapping[str, Any] | None:
    """Return what the process before noted of an offline run; None where it did not, or a power cut has emptied it.

    Raises:
        VersionError: a newer otel_ml has noted it.
    """
    if not memory.exists():
        return None
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
        last = json.loads(memory.read_text())
        require(memory, last.get("form", _FORM), _FORM)
        position = last["position"]
        if isinstance(last["log"], str) and (position is None or isinstance(position, int)):
            return {"log": last["log"], "position": position}
    return None


def _write_whole(path: Path, text: str) -> None:
    """Write a file in place of the one that is there: on a full disk an empty one would say something else."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def _root(run: RunInfo) -> Path:
    """Return `OTEL_ML_DIR`: the run's folder is `<experiment>/<id>` in it."""
    return run.dir.resolve().parent.parent


def _logs(run: RunInfo) -> str:
    """Return the folders of the run's offline logs, for a shell: each process that went on with it has its own."""
    return f"{shlex.quote(str(_root(run)))}/{_LOGS.format(_id(run))}"


def _id(run: RunInfo) -> str:
    """Return the run's id in W&B; a further instance has a run of its own: W&B opens none twice in a process."""
    return identifier(f"{run.id}-{run.instance}" if run.instance else run.id)


def _wait_for_a_folder_of_its_own(root: Path, run_id: str) -> None:
    """Wait until nobody opened the run in this second: W&B names its folder after it, and would write over that log."""
    while any(root.glob(f"*run-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}")):
        time.sleep(_SECOND_POLL)


def _init(wandb: Any, run: RunInfo, options: Options, decision: Decision) -> tuple[Any, Decision]:
    arguments = _arguments(wandb, run, options)
    try:
        with _forgets_a_dead_service(wandb):
            return wandb.init(mode=decision.mode, **arguments), decision
    except wandb.errors.AuthenticationError as error:
        # No key will be right by itself: offline would hide that the one there is wrong.
        raise ConfigError(f"wandb: {error}", slug="exporter-failing") from error
    except wandb.errors.CommError as error:
        if not decision.may_fall_back:
            raise
        # It answered the probe, and does not answer W&B: of a run that nobody has opened before, nothing is on it yet.
        notice = kept_offline(f"the server did not open the run ({error})", _logs(run))
        return wandb.init(mode="offline", **arguments), Decision("offline", notice)


def _arguments(wandb: Any, run: RunInfo, options: Options) -> dict[str, Any]:
    known = wandb.Settings.model_fields
    settings = {name: value for name, value in _SETTINGS.items() if name in known}
    project = options.project or os.environ.get("WANDB_PROJECT") or run.experiment
    return {
        "project": identifier(project, 128),
        "entity": options.entity,
        "group": options.group or _labeled(run, "group"),
        "job_type": options.job_type or _labeled(run, "job_type"),
        "tags": tags_of(run, options),
        "notes": options.notes or run.notes,
        "id": _id(run),
        "name": run.name or run.id,
        # A new run where there is none of that id yet, and after a restart the same one.
        "resume": "allow",
        # A service has many runs open at once: otherwise the next one would end the one before.
        "reinit": "create_new",
        "dir": str(_root(run)),
        "settings": wandb.Settings(**settings),
    }


def _labeled(run: RunInfo, name: str) -> str | None:
    """Return what a tag `name:…` of the run says, as those of a script that was written for W&B do."""
    return next((tag.removeprefix(f"{name}:") for tag in run.tags if tag.startswith(f"{name}:")), None)


def tags_of(run: RunInfo, options: Options) -> list[str]:
    """Return the run's tags and the configured ones, as W&B takes them."""
    return list(dict.fromkeys(tag[:_MAX_TAG] for tag in (*run.tags, *options.tags) if tag))


def _position(
    opened: Any, mode: str, log: Path, memory: Path, before: str | None, last: Mapping[str, Any] | None
) -> int | None:
    """Return the last row that is stored, and note with which log and from where this process goes on.

    Args:
        opened: `wandb.Run`.
        mode: `online`, `offline` or `disabled`.
        log: of this process.
        memory: where it is noted.
        before: the mode of the process before.
        last: what that noted.
    """
    if mode == "disabled":
        return None
    if mode == "online":
        return max(0, int(opened.starting_step) - 1)
    position = _stored_offline(log, before, last)
    _write_whole(memory, json.dumps({"log": str(log), "position": position}))
    return position


def _stored_offline(log: Path, before: str | None, last: Mapping[str, Any] | None) -> int | None:
    # Only now, after the 0.3 s that `init` takes: the service of a killed predecessor may have been writing still.
    earlier = [path for path in log.parent.parent.glob(f"offline-run-*/{log.name}") if path != log]
    found = [transaction_log.last_row(path) for path in earlier if transaction_log.repair(path)]
    newest = max(found, default=0)
    if before != "offline":
        return newest
    if last is None:
        return newest if found else None
    if Path(last["log"]) not in earlier:
        return None  # uploaded and removed: the pipeline's own mark counts
    # Its log may have no row, though it was given some: `wandb-core` writes them 0.2 s later, if it lives for so long.
    return (newest or None) if last["position"] is None else max(newest, last["position"])


@contextlib.contextmanager
def _forgets_a_dead_service(wandb: Any) -> Any:
    """Let the next try start a new `wandb-core` where the one of this process died."""
    try:
        yield
    except Exception as error:
        if not service_is_gone(error):
            raise
        with contextlib.suppress(Exception):
            wandb.teardown()
        raise RetryableExportError(f"W&B: its process wandb-core had died ({error}); it is started again.") from error

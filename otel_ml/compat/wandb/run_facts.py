"""What a `wandb.Run` says of itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import otel_ml
from otel_ml._internal.safe_repr import text_of
from otel_ml.compat.tracking.not_kept import is_given
from otel_ml.compat.wandb.parameters import Config
from otel_ml.compat.wandb.settings import Settings, is_offline

__all__ = ["InitArguments", "RunFacts"]


@dataclass(frozen=True, slots=True)
class InitArguments:
    """What `init()` was asked for, and what the program set since.

    Attributes:
        name: that was set since.
        role: of a process that shares the run with others; empty for that of the environment.
        joins: the run was begun by somebody else, who ends it.
    """

    project: str = ""
    entity: str = ""
    group: str = ""
    job_type: str = ""
    tags: tuple[str, ...] = ()
    notes: str | None = None
    name: str | None = None
    mode: str = "online"
    role: str = ""
    resumed: bool = False
    joins: bool = False


class RunFacts:
    """The attributes of a run."""

    _run: otel_ml.Run
    _asked: InitArguments
    _step: int
    _first_step: int
    _began_at: float
    _files: Path | None
    config: Config

    @property
    def is_active(self) -> bool:
        """Whether the run goes on."""
        return self._run.is_active

    @property
    def joins(self) -> bool:
        """Whether somebody else has begun the run, and ends it."""
        return self._asked.joins

    @property
    def id(self) -> str:
        """Of the run; `init(id=…, resume="allow")` continues it."""
        return self._run.id

    @property
    def name(self) -> str:
        """Shown in the backends."""
        return self._run.name if self._asked.name is None else self._asked.name

    @name.setter
    def name(self, name: str) -> None:
        self._describe_anew(name=text_of(name))

    @property
    def project(self) -> str:
        """The experiment."""
        return self._asked.project or self._run.experiment

    @property
    def entity(self) -> str:
        """As given."""
        return self._asked.entity

    @property
    def path(self) -> str:
        """`entity/project/id`."""
        return "/".join(part for part in (self.entity, self.project, self.id) if part)

    @property
    def group(self) -> str:
        """As given; the tag `group:<name>`."""
        return self._asked.group

    @property
    def job_type(self) -> str:
        """As given; the tag `job_type:<name>`."""
        return self._asked.job_type

    @property
    def tags(self) -> tuple[str, ...]:
        """As given."""
        return self._asked.tags

    @tags.setter
    def tags(self, tags: Iterable[str]) -> None:
        self._describe_anew(tags=_labels(tags))

    @property
    def notes(self) -> str | None:
        """As given."""
        return self._asked.notes

    @notes.setter
    def notes(self, notes: str | None) -> None:
        self._describe_anew(notes=None if notes is None else text_of(notes))

    @property
    def step(self) -> int:
        """The step that the next `log()` counts at."""
        return self._step

    @property
    def resumed(self) -> bool:
        """Whether a run that was there before goes on."""
        return self._asked.resumed

    @property
    def offline(self) -> bool:
        """Whether W&B is not to be reached."""
        return is_offline(self._asked.mode)

    @property
    def disabled(self) -> bool:
        """Whether nothing is recorded."""
        return False

    @property
    def sweep_id(self) -> str | None:
        """None: sweeps are W&B's own."""
        return None

    @property
    def url(self) -> str | None:
        """Where W&B shows the run, once the exporter `wandb` has started it there."""
        return self._run.urls.get("wandb")

    @property
    def dir(self) -> str:
        """A folder for files of the program; what is there at the end becomes an artifact."""
        if self._files is None:
            self._files = self._folder()
        return str(self._files)

    def get_url(self) -> str | None:
        """Return `url`."""
        return self.url

    def get_project_url(self) -> str | None:
        """Return `project_url`."""
        return self.project_url

    def get_sweep_url(self) -> str | None:
        """Return `sweep_url`."""
        return self.sweep_url

    def project_name(self) -> str:
        """Return `project`."""
        return self.project

    @property
    def project_url(self) -> str | None:
        """Where W&B shows the project, once the exporter `wandb` has started the run there."""
        return None if self.url is None else self.url.rpartition("/runs/")[0] or None

    @property
    def sweep_url(self) -> str | None:
        """None: sweeps are W&B's own."""
        return None

    @property
    def start_time(self) -> float:
        """When it began, in seconds since 1970."""
        return self._began_at

    @property
    def starting_step(self) -> int:
        """Its first step; of a run that goes on that after its last."""
        return self._first_step

    @property
    def sync_dir(self) -> str:
        """The run's own folder; empty where a service elsewhere has it."""
        return "" if self._run.dir is None else str(self._run.dir)

    @property
    def settings(self) -> Settings:
        """What is known of W&B's settings; changing them changes nothing."""
        return Settings(
            run_id=self.id,
            run_name=self.name,
            run_group=self.group,
            run_job_type=self.job_type,
            run_notes=self.notes,
            run_tags=self.tags,
            run_url=self.url,
            project=self.project,
            project_url=self.project_url,
            entity=self.entity,
            mode="disabled" if self.disabled else self._asked.mode,
            sync_dir=self.sync_dir,
            files_dir=self.dir,
        )

    @property
    def config_static(self) -> SimpleNamespace:
        """The parameters as they are now, as attributes."""
        return SimpleNamespace(**self.config.as_dict())

    def status(self) -> SimpleNamespace:
        """Return that nothing is pending for the program: the background thread sends."""
        return SimpleNamespace(sync_items_total=0, sync_items_pending=0, sync_time=None)

    def display(self, height: int = 420, hidden: bool = False) -> bool:
        """Return False: a notebook shows the run where a cell ends with it."""
        del height, hidden
        return False

    def to_html(self, height: int = 420, hidden: bool = False) -> str:
        """Return what a notebook shows."""
        del height, hidden
        return self._run._repr_html_()

    def _describe_anew(self, **said: Any) -> None:
        """Take another name, other tags or other notes."""
        self._asked = replace(self._asked, **said)

    def _folder(self) -> Path:
        if self._run.dir is None:
            # A service elsewhere has the run's folder. What is in this one at the end is recorded all the same.
            return Path(tempfile.mkdtemp(prefix="otel-ml-files-"))
        folder = self._run.dir / "files"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _repr_html_(self) -> str:
        return self._run._repr_html_()

    def __repr__(self) -> str:
        return f"<wandb.Run {self.path} of otel_ml>"


def _labels(tags: Any) -> tuple[str, ...]:
    if isinstance(tags, str) or not is_given(tags):
        return (tags,) if isinstance(tags, str) else ()
    try:
        return tuple(map(text_of, tags))
    except Exception:  # noqa: BLE001 (somebody's object, of which there is no going through)
        return (text_of(tags),)

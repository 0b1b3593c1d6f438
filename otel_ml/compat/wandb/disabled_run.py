"""The run of `mode="disabled"`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from otel_ml.compat.wandb.artifact import Artifact
from otel_ml.compat.wandb.definitions import Metric
from otel_ml.compat.wandb.recording_run import Run
from otel_ml.compat.wandb.run_facts import RunFacts

__all__ = ["DisabledRun"]


class DisabledRun(Run):
    """Everything is accepted, with any arguments or none, and nothing is recorded."""

    def use(self) -> AbstractContextManager[None]:
        """Do nothing: there is no run of otel_ml."""
        return nullcontext()

    @property
    def is_active(self) -> bool:
        """Whether it has not been finished."""
        return not self._is_over

    @property
    def disabled(self) -> bool:
        """Always."""
        return True

    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None
    ) -> None:
        """Remember the last values for `summary`; the step stays 0, as in W&B."""
        del step, commit, sync
        # Otherwise nothing, and not a word: what a disabled run is given is looked at nowhere else.
        if isinstance(data, Mapping):
            self.summary.observe(data)

    def _describe_anew(self, **said: Any) -> None:
        """Remember it; whichever run is current, it is another one."""
        # Not super(): that of `Run` would tell the session of a run that records.
        RunFacts._describe_anew(self, **said)  # noqa: SLF001 (of its own class)

    def save(
        self,
        glob_str: Any = None,
        base_path: Any = None,
        policy: str = "live",
        glob: bool = True,
    ) -> list[str]:
        """Do nothing."""
        return []

    def define_metric(self, name: str = "", *arguments: Any, **options: Any) -> Metric:
        """Do nothing."""
        del arguments, options
        return Metric(name)

    def log_artifact(
        self,
        artifact_or_path: Any = "",
        name: str | None = None,
        type: str | None = None,  # noqa: A002 (W&B's name)
        aliases: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
    ) -> Artifact:
        """Return an artifact; nothing is read."""
        del aliases, tags
        if isinstance(artifact_or_path, Artifact):
            return artifact_or_path
        return Artifact(name or str(artifact_or_path), type or "file")

    def upsert_artifact(self, artifact_or_path: Any = "", *arguments: Any, **options: Any) -> Artifact:
        """Return an artifact; nothing is read."""
        del arguments, options
        return self.log_artifact(artifact_or_path)

    finish_artifact = upsert_artifact

    def use_artifact(self, artifact_or_name: Any = "", *arguments: Any, **options: Any) -> Any:
        """Return an artifact without files; nobody is asked."""
        del arguments, options
        return self.log_artifact(artifact_or_name)

    def log_model(self, path: Any = "", *arguments: Any, **options: Any) -> Artifact:
        """Return an artifact; nothing is read."""
        del arguments, options
        return self.log_artifact(path)

    def link_model(self, path: Any = "", *arguments: Any, **options: Any) -> Artifact:
        """Return an artifact; nothing is linked."""
        del arguments, options
        return self.log_artifact(path)

    def log_code(self, *arguments: Any, **options: Any) -> None:
        """Do nothing."""
        del arguments, options

    def to_html(self, height: int = 420, hidden: bool = False) -> str:
        """Return nothing that a notebook shows."""
        del height, hidden
        return ""

    def use_model(self, name: str = "") -> str:
        """Return no path; nobody is asked."""
        del name
        return ""

    def link_artifact(self, artifact: Any = None, *arguments: Any, **options: Any) -> Any:
        """Do nothing."""
        del arguments, options
        return artifact

    def restore(
        self, name: str = "", run_path: str | None = None, replace: bool = False, root: str | None = None
    ) -> None:
        """Do nothing."""

    def watch(self, models: Any = None, *more: Any, **options: Any) -> list[Any]:
        """Do nothing."""
        return []

    def write_logs(self, text: str = "") -> None:
        """Do nothing."""

    def pin_config_keys(self, keys: Iterable[str] = ()) -> None:
        """Do nothing."""

    def alert(self, title: str = "", text: str = "", level: Any = None, wait_duration: Any = None) -> None:
        """Do nothing."""

    def mark_preempting(self) -> None:
        """Do nothing."""

    def _keep(self, artifact: Artifact, aliases: tuple[str, ...]) -> None:
        """Do nothing."""

    def _write_summary(self, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def _last_words(self) -> None:
        """Do nothing."""

    def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Do nothing."""

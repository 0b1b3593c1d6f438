"""Which id the next run of this process has, and who this process is in it."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml._internal.identity.first_of_loop import Asked, first_of_loop, note_first_of_loop
from otel_ml._internal.identity.run_identity import Identity, identify, named_id
from otel_ml._internal.lifecycle.join_parent import CHILDREN
from otel_ml._internal.lifecycle.sessions import Sessions
from otel_ml.config import Config

__all__ = ["RunIds"]


class RunIds:
    """Remembers the runs that this process has begun: each has an id of its own, and all ranks count alike.

    Args:
        sessions: the active ones.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._begun_without_id: list[int] = []
        self._first_of_id: dict[str, Asked] = {}

    def of_environment(self, config: Config) -> str:
        """Return the id that the environment gives; one made of it for a later run of another name, on all ranks alike.

        Empty where a run that goes on has it: the launcher then says which it is.
        """
        asked = config.experiment, config.name
        if config.id not in self._first_of_id:
            self._first_of_id[config.id] = first_of_loop(config)
        if asked != (first := self._first_of_id[config.id]):
            # When the second one begins: a program with a single run writes nothing (ADR 0065).
            note_first_of_loop(config, first)
            return named_id(config.id, *asked)
        return "" if any(config.id == other.run.id for other in self._sessions.running) else config.id

    def identify(self, config: Config, environ: Mapping[str, str]) -> Identity:
        """Return who this process is in the run that it begins."""
        identity = identify(config, environ, instance=CHILDREN.instance(), begun=self._begun_without_id)
        if not config.id:
            self._begun_without_id.append(identity.number)
        return identity

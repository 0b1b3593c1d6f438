"""Tells which run this process is in to those who may join it: its children, and the ranks of its launch.

Where a process has several runs at a time, it names none: nobody could know which one is meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml._internal.lifecycle.child_environment import inherited_environ, run_environ
from otel_ml._internal.lifecycle.join_parent import CHILDREN, has_joined_parent
from otel_ml._internal.lifecycle.join_rank_zero import announce, say_who_has_ended, say_who_stays
from otel_ml._internal.lifecycle.session import Session
from otel_ml._internal.run_environment import RunEnvironment
from otel_ml._internal.run_scope import NOW, InScope

__all__ = ["TellOthers"]


class TellOthers:
    """What others know of this process' run."""

    def __init__(self) -> None:
        self._environment = RunEnvironment()

    def of_beginning(self, session: Session) -> None:
        """Have children that are made from now on join it."""
        # Where a second run is beginning, `Runtime.begin_session()` has taken back what was said of the first.
        if not NOW.several:
            self._environment.set(inherited_environ(session.config, session.identity, self.given_environ()))

    def of_begun(self, session: Session) -> None:
        """Say it to the ranks of the launch, to children there are, and to the parent; say who stays in another run."""
        config, identity = session.config, session.identity
        if not NOW.several:
            announce(config, identity, run_environ(config, identity))
        # What is said is of the run that begins, which is not yet the current one of this context.
        with InScope(session.scope):
            say_who_stays(config, identity)
            say_who_has_ended(config, identity)
            if not NOW.several:
                CHILDREN.tell(inherited_environ(config, identity, self.given_environ()), identity.run_id)
        has_joined_parent(identity.run_id)

    def given_environ(self) -> Mapping[str, str]:
        """Return the environment without what the runs of this process hand to its children."""
        return self._environment.before()

    def no_more(self) -> None:
        """Name no run to children, neither those that are made from now on nor those there are."""
        self._environment.undo()
        CHILDREN.tell_no_more()

"""Several runs side by side, also while they train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from otel_ml_service.report.contents import Contents
from otel_ml_service.report.page import compared_parts, page_of_parts
from otel_ml_service.ui.followed_run import FollowedRun, digest_of

__all__ = ["ComparedRuns"]


class ComparedRuns:
    """Draws all of what is compared anew when one of the runs has changed.

    Args:
        runs: which, each once.
    """

    def __init__(self, runs: Sequence[FollowedRun]) -> None:
        self._runs = runs

    def page(self) -> str:
        """Return the page as it is now."""
        with self._held() as (contents, version):
            return page_of_parts(f"{len(contents)} runs", _drawn(contents), version, all_runs="./")

    def news(self, version: str, seen: frozenset[str]) -> dict[str, Any] | None:
        """Return the parts of the page that are other ones than those `seen`; None where no run has changed."""
        with self._held() as (contents, newest):
            if version == newest:
                return None
            drawn = _drawn(contents)
        parts = {name: {"hash": digest, "html": html} for name, (digest, html) in drawn.items() if digest not in seen}
        return {"version": newest, "parts": parts, "charts": {}}

    @contextmanager
    def _held(self) -> Iterator[tuple[list[Contents], str]]:
        """Yield what the runs hold; taken in one order, so that two pages do not wait for each other."""
        with ExitStack() as stack:
            order = sorted(self._runs, key=lambda run: run.folder.path)
            held = {run.folder.path: stack.enter_context(run.held()) for run in order}
            # In the order in which they were asked for, which is that of the page.
            found = [held[run.folder.path] for run in self._runs]
            yield [one.contents for one in found], "".join(one.version for one in found)


def _drawn(contents: Sequence[Contents]) -> dict[str, tuple[str, str]]:
    return {name: (digest_of(html), html) for name, html in compared_parts(contents).items()}

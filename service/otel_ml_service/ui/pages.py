"""The list of runs as a page; its rows are asked for."""

from __future__ import annotations

from pathlib import Path

from otel_ml_service.report.markup import Markup, joined, tag
from otel_ml_service.report.page import document
from otel_ml_service.report.style import list_script

__all__ = ["list_page"]


def list_page(base: Path) -> str:
    """Return the page of all runs in a folder."""
    body = joined(
        [
            tag("h1", "Runs"),
            tag("p", str(base), class_="quiet"),
            Markup(
                '<div class="tools"><input type="search" id="filter" placeholder="filter: words in any column"'
                ' aria-label="filter" autofocus> <button type="button" id="compare" disabled>Compare</button>'
                ' <span id="said" class="quiet" aria-live="polite"></span></div>'
            ),
            tag("section", tag("div", id="runs", class_="wide")),
        ]
    )
    return document("Runs", body, list_script())

"""What a person is told of an exporter that failed, and of what becomes of its records."""

from __future__ import annotations

from collections.abc import Callable

from otel_ml.exceptions import OtelMLError
from otel_ml_exporters.errors import StoreGoneError
from otel_ml_service.delivery.plugin_values import shown

__all__ = ["as_sentence", "problem_of", "say_failure"]


def problem_of(error: BaseException) -> str:
    """Return what went wrong, in a sentence or as Python has it.

    Examples:
        >>> problem_of(OSError("no space left")), problem_of(KeyError())
        ('OSError: no space left', 'KeyError')
    """
    if isinstance(error, OtelMLError):
        try:
            return shown(error.sentence)
        except BaseException:  # noqa: BLE001 (a plug-in's object in place of a sentence)
            return f"<{type(error).__name__}>"
    return f"{type(error).__name__}: {shown(error)}".rstrip(": ")


def say_failure(
    say: Callable[[str, str], None], name: str, error: BaseException, state: str, *, tries_left: int | None
) -> None:
    """Say it, and what becomes of the records.

    Args:
        say: takes a slug of the catalogue and a sentence.
        name: of the exporter.
        error: what it raised.
        state: that it is in now.
        tries_left: how often the records are tried again before they are lost; None: until it works.
    """
    slug = error.slug if isinstance(error, OtelMLError) else "exporter-failing"
    who, problem = f"Exporter {name!r}", as_sentence(problem_of(error))
    if isinstance(error, StoreGoneError):
        say(slug, f"{who}: {problem} It is written again, from the beginning of what is kept.")
    elif state == "stopped":
        say(slug, f"{who}: {problem} It is closed; what it did not store is kept for the next start.")
    elif tries_left is None:
        say(slug, f"{who}: {problem} It is tried again; the others go on, and what it does not have is kept.")
    else:
        say(
            slug,
            f"{who}: {problem} An exporter should not raise that. It is tried {tries_left} times more; "
            "what it then still does not take is set aside and counted as lost. The others go on.",
        )


def as_sentence(problem: str) -> str:
    """Return it with a full stop, so that what follows is a sentence of its own.

    Examples:
        >>> as_sentence("MLflow: no answer"), as_sentence("Is it there?")
        ('MLflow: no answer.', 'Is it there?')
    """
    return problem if problem.endswith((".", "!", "?", ":")) else f"{problem}."

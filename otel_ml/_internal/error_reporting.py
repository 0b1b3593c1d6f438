"""Never hurt training: count what is wrong, say it once, raise only under `OTEL_ML_STRICT=true`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import ParamSpec

from otel_ml._internal.run_scope import NOW, PROCESS, current_scope
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained

__all__ = ["ErrorReporter", "RecordingError", "Say", "never_raises", "reporter", "say_unused"]

P = ParamSpec("P")

Say = Callable[[str, str], None]
"""Says a sentence once: (slug of its section in the catalogue, sentence)."""

_REMEMBERED = 1000
"""Sentences told apart per process; a program that is wrong in more ways than this has been told enough."""


class RecordingError(OtelMLError, ValueError):
    """A recording call got something it cannot record (raised under `OTEL_ML_STRICT=true` only)."""


class ErrorReporter:
    """Count drops by reason and say each sentence once.

    `say` is where sentences go: the runtime sets it to the service, or to stderr of local rank 0.
    Until then they are kept, and handed over by `connect`.
    """

    def __init__(self, dropped: Counter[str] | None = None) -> None:
        self.strict = False
        self._dropped: Counter[str] = Counter() if dropped is None else dropped
        self._said: set[str] = set()
        self._kept: list[str] = []
        self._say: Callable[[str], None] | None = None

    @property
    def dropped(self) -> Counter[str]:
        """What was not accepted, by reason, of the run that this call is for."""
        return current_scope().dropped if NOW.several else self._dropped

    def connect(self, say: Callable[[str], None] | None) -> None:
        """Send sentences to `say`, first those kept until now; None keeps them again."""
        self._say = say
        if say is not None:
            kept, self._kept = self._kept, []
            for sentence in kept:
                say(sentence)

    def say(self, slug: str, sentence: str, kind: str = "") -> None:
        """Say a sentence for the first time, or not at all; `otel-ml explain <slug>` says more.

        Args:
            slug: of its section in the catalogue.
            sentence: what is wrong.
            kind: where the sentence holds a value that differs from call to call: what is reported once.
        """
        said_as = kind or sentence
        if said_as in self._said or len(self._said) >= _REMEMBERED:
            return
        self._said.add(said_as)
        said = explained(sentence, slug)
        say = (current_scope().say or self._say) if NOW.several else self._say
        if say is None:
            self._kept.append(said)
        else:
            say(said)

    def wrong(self, slug: str, sentence: str, kind: str = "") -> None:
        """Report a mistake that loses nothing; see `say()`.

        Raises:
            RecordingError: in strict mode.
        """
        if self.strict:
            raise RecordingError(sentence, slug=slug)
        self.say(slug, sentence, kind)

    def drop(self, reason: str, sentence: str, count: int = 1, kind: str = "") -> None:
        """Count values that will not be delivered, and say why, see `say()`; the reason, with hyphens, is the slug.

        Raises:
            RecordingError: in strict mode.
        """
        self.dropped[reason] += count
        self.wrong(reason.replace("_", "-"), sentence, kind)

    def failed(self, what: str, error: BaseException) -> None:
        """Report a failure inside a recording call.

        Raises:
            BaseException: `error` itself, in strict mode.
        """
        if isinstance(error, RecordingError):
            raise error
        self.dropped["internal_error"] += 1
        if self.strict:
            raise error
        self.say(
            "internal-error",
            f"{what} failed with {type(error).__name__}: {text_of(error)}. The value is not recorded; training goes "
            "on.",
        )

    def forget(self) -> None:
        """Start from nothing: a forked child counts and says for itself."""
        self.dropped.clear()
        self._kept.clear()
        self._said.clear()


reporter: ErrorReporter = ErrorReporter(PROCESS.dropped)
"""The guard of this process."""


def say_unused(call: str, by_position: Sequence[object], by_name: Mapping[str, object]) -> None:
    """Say what a call that defines something was given and has no use for; it loses nothing."""
    if by_position:
        given = ", ".join(map(safe_repr, by_position))
        reporter.wrong(
            "unknown-argument",
            f"{call}(): expected options by name, got {given} by position. "
            f"Call {call}(name, reduce={safe_repr(by_position[0])}).",
        )
    if by_name:
        reporter.wrong(
            "unknown-argument", f"{call}(): unknown argument {', '.join(by_name)}. It is not used, all else is."
        )


_PANIC = "PanicException"
"""What bindings of libraries in Rust (polars, tokenizers) raise for a defect: no `Exception`, and in no module."""


def never_raises(call: Callable[P, None]) -> Callable[P, None]:
    """Return `call`, of which every failure is counted and said; and what to type where its arguments are others."""
    name = call.__name__

    @wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            call(*args, **kwargs)
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
                raise  # Ctrl-C, an exit, a task that is cancelled
            wrong = _what_does_not_fit(call, args, kwargs) if isinstance(error, TypeError) else ""
            if not wrong:
                reporter.failed(f"{name}()", error)
                return
            takes = _without_types(signature(call))
            reporter.drop(
                "bad_event",
                f"{name}(): {wrong}. Call {name}{takes}, with what follows the star by name.",
                kind=f"arguments of {name}()",
            )

    return guarded


def _what_does_not_fit(call: Callable[..., None], args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    try:
        signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _without_types(takes: Signature) -> Signature:
    bare = [one.replace(annotation=Parameter.empty) for one in takes.parameters.values()]
    return Signature(bare)

"""Never hurt training: count what is wrong, say it once, raise only under `OTEL_ML_STRICT=true`."""

from __future__ import annotations

import atexit
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from otel_ml._internal.console import Console, is_first_of_host
from otel_ml._internal.meant_name import meant_names
from otel_ml._internal.run_scope import NOW, PROCESS, current_scope
from otel_ml._internal.safe_repr import safe_repr, text_of
from otel_ml._internal.signature import MISSING
from otel_ml.config import Config
from otel_ml.exceptions import OtelMLError
from otel_ml.explanation import explained

__all__ = ["ErrorReporter", "RecordingError", "Say", "answered", "never_raises", "refusing", "reporter", "say_unused"]

P = ParamSpec("P")
T = TypeVar("T")

Say = Callable[[str, str], None]
"""Says a sentence once: (slug of its section in the catalogue, sentence)."""

_REMEMBERED = 1000
"""Sentences told apart per process; a program that is wrong in more ways than this has been told enough."""

_SHOWN_AT_EXIT = 5
"""Of the sentences that no run came to say: the first ones explain most of the others."""


class RecordingError(OtelMLError, ValueError):
    """A recording call got something it cannot record (raised under `OTEL_ML_STRICT=true` only)."""


class ErrorReporter:
    """Count drops by reason and say each sentence once.

    `say` is where sentences go: the runtime sets it to the service, or to stderr of local rank 0.
    Until then they are kept, and handed over by `connect`; what is lost is said at the end where that never comes.
    """

    def __init__(self, dropped: Counter[str] | None = None) -> None:
        self.strict = False
        self._dropped: Counter[str] = Counter() if dropped is None else dropped
        self._said: set[str] = set()
        self._kept: list[str] = []
        self._unheard: list[str] = []
        self._say: Callable[[str], None] | None = None

    @property
    def dropped(self) -> Counter[str]:
        """What was not accepted, by reason, of the run that this call is for."""
        return current_scope().dropped if NOW.several else self._dropped

    @property
    def kept(self) -> Sequence[str]:
        """What nobody was there to hear."""
        return tuple(self._kept)

    def connect(self, say: Callable[[str], None] | None) -> None:
        """Send sentences to `say`, first those kept until now; None keeps them again."""
        # First: a sentence of another thread, said in between, would be kept again, and nobody would hand it over.
        self._say = say
        if say is not None:
            kept, self._kept, self._unheard = self._kept, [], []
            for sentence in kept:
                say(sentence)

    def say(self, slug: str, sentence: str, kind: str = "", *, is_loss: bool = False) -> None:
        """Say a sentence for the first time, or not at all; `otel-ml explain <slug>` says more.

        Args:
            slug: of its section in the catalogue.
            sentence: what is wrong.
            kind: where the sentence holds a value that differs from call to call: what is reported once.
            is_loss: it is to be heard also where no run ever begins.
        """
        said_as = kind or sentence
        if said_as in self._said or len(self._said) >= _REMEMBERED:
            return
        # Before it is said: what says it may find something wrong itself, a full queue of events perhaps, and come here
        # again.
        self._said.add(said_as)
        said = explained(sentence, slug)
        say = (current_scope().say or self._say) if NOW.several else self._say
        if say is None:
            self._kept.append(said)
            if is_loss:
                self._unheard.append(said)
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
        slug = reason.replace("_", "-")
        if self.strict:
            raise RecordingError(sentence, slug=slug)
        self.say(slug, sentence, kind, is_loss=True)

    def failed(self, what: str, error: BaseException, count: int = 1) -> None:
        """Report a failure inside a recording call of so many values.

        Raises:
            BaseException: `error` itself, in strict mode.
        """
        # Of strict mode, raised where the mistake was seen: it is counted already.
        if isinstance(error, RecordingError):
            raise error
        self.dropped["internal_error"] += count
        if self.strict:
            raise error
        self.say(
            "internal-error",
            f"{what} failed with {type(error).__name__}: {text_of(error)}. The value is not recorded; training goes "
            "on.",
            is_loss=True,
        )

    def say_unheard(self) -> None:
        """At the exit of the process: print what was lost and no run came to say, once on a host."""
        if not self._unheard or not is_first_of_host():
            return
        # No run has begun, so none has read the settings.
        config = Config.from_env()
        console = Console(is_quiet=config.is_quiet or config.disabled)
        for sentence in self._unheard[:_SHOWN_AT_EXIT]:
            console.line(sentence)
        more = len(self._unheard) - _SHOWN_AT_EXIT
        if more > 0:
            console.line(f"{more:,} more mistakes are not shown: a run has them all. Call otel_ml.init() first.")

    def forget(self) -> None:
        """Start from nothing: a forked child counts and says for itself."""
        self.dropped.clear()
        self._kept.clear()
        self._unheard.clear()
        self._said.clear()


reporter: ErrorReporter = ErrorReporter(PROCESS.dropped)
"""The guard of this process."""

atexit.register(reporter.say_unheard)


def say_unused(call: Callable[..., object], by_position: Sequence[object], by_name: Iterable[str]) -> None:
    """Say what a call was given and has no use for, and how it is called; it loses nothing."""
    name = call.__name__
    takes = _without_types(signature(call))
    if by_position:
        given = ", ".join(map(safe_repr, by_position[:_SHOWN])) + (", …" if len(by_position) > _SHOWN else "")
        option = _first_option(call, takes)
        if option:
            subject = next(iter(takes.parameters))
            expected = f"expected options by name, got {given} by position"
            typed = f"{name}({subject}, {option}={safe_repr(by_position[0])})"
        else:
            expected, typed = f"got {given} beside what it takes", f"{name}{takes}"
        reporter.wrong("unknown-argument", f"{name}(): {expected}. Call {typed}.", kind=f"{name}() by position")
    if by_name:
        shown = [*by_name][:_SHOWN]
        names = ", ".join(one[:_SHOWN_OF_A_NAME] for one in shown)
        meant = meant_names(shown, takes.parameters)
        reporter.wrong(
            "unknown-argument",
            f"{name}(): unknown argument {names}.{meant} It is not used, all else is. Call {name}{takes}.",
        )


def _first_option(call: Callable[..., object], takes: Signature) -> str:
    """Return the option that stands first after one subject; nothing where a call takes more by position."""
    if not takes.parameters:
        return ""
    subject, *options = takes.parameters.values()
    written = signature(getattr(call, "__wrapped__", call)).parameters.values()
    are_by_name = [one for one in written if one.kind is Parameter.KEYWORD_ONLY]
    is_one = subject.kind in _BY_POSITION and options and options[0].kind is Parameter.KEYWORD_ONLY
    return options[0].name if is_one and len(are_by_name) == len(options) else ""


_SHOWN = 5
"""Arguments that a message lists."""

_SHOWN_OF_A_NAME = 80


def answered(call: Callable[P, T]) -> Callable[P, T]:
    """Return `call`, which does not raise where its arguments are others: what it has no use for is said, and left out.

    What it needs and was not given is `MISSING`, of which it says what it expects, as of any other wrong value. It
    costs a frame: the calls of a loop see to it themselves.
    """

    @wraps(call)
    def taken(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # the call has begun: it is not its arguments that Python refuses
        fitting, named, more, unknown = _fitting(signature(call), args, kwargs)
        say_unused(taken, more, unknown)
        return call(*fitting, **named)

    return taken


def refusing(error: type[OtelMLError]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a call that configures raise this error, with how it is called, where its arguments are others."""

    def as_refusing(call: Callable[P, T]) -> Callable[P, T]:
        @wraps(call)
        def taken(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return call(*args, **kwargs)
            except TypeError as wrong:
                # As in `answered()`: a TypeError of the call's own is not about its arguments.
                if wrong.__traceback__ is None or wrong.__traceback__.tb_next is not None:
                    raise
                name, what = call.__name__, _what_does_not_fit(call, args, kwargs) or "unusual arguments"
                raise error(f"{name}(): {what}. Call {name}{_without_types(signature(taken))}.") from None

        return taken

    return as_refusing


def _fitting(
    takes: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], Sequence[Any], list[str]]:
    """Return what a call can be given, by position and by name, and what is left."""
    # `f(1, 2, 3, d=4)` of `def f(a, b)` gives ([1, 2], {}, (3,), ["d"]).
    parameters = takes.parameters
    places = [one for one in parameters.values() if one.kind in _BY_POSITION]
    fitting = list(args[: len(places)])
    given = {one.name for one in places[: len(fitting)]}
    named = {name: value for name, value in kwargs.items() if name in parameters and name not in given}
    for one in places[len(fitting) :]:
        if one.default is Parameter.empty:
            named.setdefault(one.name, MISSING)
    return fitting, named, args[len(places) :], [name for name in kwargs if name not in named]


_BY_POSITION = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}


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


def _what_does_not_fit(call: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    try:
        signature(call).bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _without_types(takes: Signature) -> Signature:
    """Return how a call is written: a method without its object."""
    bare = [one.replace(annotation=Parameter.empty) for one in takes.parameters.values() if one.name != "self"]
    return Signature(bare)

"""The code with which the main thread leaves: Python has forgotten it by the time of `atexit`.

An exception that nobody caught is left in `sys.last_value`, but not `SystemExit`. What is left of that is where the
outermost frame stopped: at its end, or where the exception passed. The code itself is noted when it is given, by
`sys.exit()`, `exit()` and `quit()`, which are given back when the run ends.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import linecache
import sys
import threading
from types import FrameType
from typing import Any, Literal

__all__ = ["ExitCode", "ExitStatus", "status_of_error"]

ExitStatus = Literal["finished", "failed", "killed"]

_UNKNOWN = object()


class ExitCode:
    """Tells how the main thread left."""

    def __init__(self) -> None:
        self._frame: FrameType | None = None
        self._given: object = _UNKNOWN
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def watch(self) -> None:
        """Note codes from now on; safe to call again."""
        self._frame = _outermost_frame()
        if self._wrapped:
            return
        self._wrap(sys, "exit", 0)
        quitter = type(getattr(builtins, "exit", None))
        # Without the module `site` there is no `exit`, and IPython has one of a class of its own.
        if quitter.__module__ == "_sitebuiltins":
            self._wrap(quitter, "__call__", 1)

    def unwatch(self) -> None:
        """Give back what was wrapped, where nobody else wrapped it since."""
        for owner, name, wrapper, original in self._wrapped:
            if getattr(owner, name) is wrapper:
                setattr(owner, name, original)
        self._wrapped.clear()
        self._frame, self._given = None, _UNKNOWN

    @property
    def error(self) -> BaseException | None:
        """The exception by which the interpreter leaves, at `atexit`; of a code a new one, without a traceback."""
        error = getattr(sys, "last_value", None)
        if isinstance(error, BaseException):
            return error
        if self._frame is None or not _was_left_by_exception(self._frame):
            return None
        code = _code_of_raise(self._frame) if self._given is _UNKNOWN else self._given
        return SystemExit("" if code is _UNKNOWN else code)

    def _wrap(self, owner: Any, name: str, position: int) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def noting(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                # Of `exit.__call__` the first argument is `exit` itself. Without a code there is None, which means 0.
                self._given = [*arguments, *named.values(), *[None] * 2][position]
            return original(*arguments, **named)

        setattr(owner, name, noting)
        self._wrapped.append((owner, name, noting, original))


def status_of_error(error: BaseException | None) -> ExitStatus:
    """Return how a run ends while an exception is on its way, if one is.

    One that only closes a generator, or takes a program to its end, is none. A task is cancelled by Ctrl-C.

    Examples:
        >>> status_of_error(None), status_of_error(SystemExit(0)), status_of_error(SystemExit("no data"))
        ('finished', 'finished', 'failed')
        >>> status_of_error(KeyboardInterrupt())
        'killed'
    """
    if isinstance(error, SystemExit):
        code: object = error.code
        return "finished" if code is None or (isinstance(code, int) and code == 0) else "failed"
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "CancelledError":
        return "killed"
    return "finished" if error is None or isinstance(error, GeneratorExit) else "failed"


def _outermost_frame() -> FrameType | None:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 (documented)
    while frame is not None and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _was_left_by_exception(frame: FrameType) -> bool:
    if frame.f_lasti < 0:
        return False
    # A frame that has come to its end stands at a RETURN_VALUE, or at a RETURN_CONST from Python 3.12 on.
    return not dis.opname[frame.f_code.co_code[frame.f_lasti]].startswith("RETURN")


def _code_of_raise(frame: FrameType) -> object:
    """Return the code of a `raise SystemExit` that no call told of.

    Of one outside of functions the source tells it. A computed one, as in `raise SystemExit(main())`, is taken for the
    usual one, 0; one from within a function, which stopped there, for an error.
    """
    source = "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        return _UNKNOWN
    for node in nodes:
        if isinstance(node, ast.Raise) and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno):
            # `raise SystemExit` and `raise SystemExit()` have no argument: their code is None, which means 0.
            given = node.exc.args[:1] if isinstance(node.exc, ast.Call) else []
            return given[0].value if given and isinstance(given[0], ast.Constant) else None
    return _UNKNOWN

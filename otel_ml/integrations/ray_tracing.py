"""Ray's tracing, which otherwise a cluster's start alone can switch on; calls that it does not know go on as before."""

from __future__ import annotations

import functools
import gc
from typing import Any

__all__ = ["switch_on"]

_CONTEXT = "_ray_trace_ctx"
"""The keyword argument in which Ray's tracing sends the caller's span along."""


def switch_on() -> None:
    """Have the remote calls of this process carry a trace context, where what is called takes one."""
    from ray.util.tracing import tracing_helper

    _leave_out_where_it_is_not_taken()
    _forget_signatures_without_it()
    tracing_helper._enable_tracing()  # noqa: SLF001 (the only switch that is not the cluster's)


def _leave_out_where_it_is_not_taken() -> None:
    """Take the context out of calls whose target has no parameter for it, which Ray would refuse.

    Ray adds the argument to every call, and the parameter to methods that it traces: no generators, static methods and
    class methods. One with `**options` would find it among its own.
    """
    from ray.actor import signature

    check = signature.validate_args
    if hasattr(check, "leaves_out_context"):
        return

    @functools.wraps(check)
    def fitting(parameters: Any, args: Any, kwargs: Any) -> None:
        # Ray sends what is in this dictionary after the check, so it is changed and not copied.
        if _CONTEXT in kwargs and all(one.name != _CONTEXT for one in parameters):
            del kwargs[_CONTEXT]
        check(parameters, args, kwargs)

    fitting.leaves_out_context = True  # type: ignore[attr-defined]
    signature.validate_args = fitting


def _forget_signatures_without_it() -> None:
    """Have functions traced that were called already, in an earlier `ray.init()`: Ray adds the parameter once.

    In a cluster to which they were sent as they are they stay so.
    """
    import ray
    from ray.remote_function import RemoteFunction

    if ray.is_initialized():
        return
    # Ray keeps no list of its remote functions.
    for function in [one for one in gc.get_objects() if type(one) is RemoteFunction]:
        known = function._function_signature  # noqa: SLF001 (Ray keeps it nowhere else)
        if known is not None and all(one.name != _CONTEXT for one in known):
            function._function_signature = None  # noqa: SLF001 (the same)

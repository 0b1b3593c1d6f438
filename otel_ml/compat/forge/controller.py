"""The controller: backends from a configuration, one explicit flush per step, and a bounded end."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

import otel_ml
from otel_ml.compat.forge.answers import states_in
from otel_ml.compat.forge.collector import COLLECTOR, publish_merged
from otel_ml.compat.forge.environment_variables import are_metrics_off
from otel_ml.compat.forge.metric import Metric
from otel_ml.compat.forge.modes import LoggingMode
from otel_ml.compat.forge.states import State
from otel_ml.compat.tracking.own_backend import with_exporters_of_the_job
from otel_ml.compat.tracking.run_of_the_job import has_run
from otel_ml.exceptions import ConfigError
from otel_ml.warn_once import say

__all__ = [
    "FLUSH_TIMEOUT_S",
    "Endpoint",
    "GlobalLoggingActor",
    "LocalFetcherActor",
    "MetricCollector",
    "get_or_create_metric_logger",
    "start",
]

FLUSH_TIMEOUT_S = 2.0
"""A process that does not answer a flush by then is left out of it: what it holds comes with the next one."""

_KNOWN = frozenset({"logging_mode", "per_rank_share_run", "project", "name", "tags", "notes", "group"})

_MODES = ", ".join(repr(mode.value) for mode in LoggingMode)


class Endpoint:
    """A method as an actor framework would offer it: `await logger.flush.call_one(3)`."""

    def __init__(self, method: Callable[..., Awaitable[Any]]) -> None:
        self._method = method

    async def call_one(self, *arguments: Any, **keywords: Any) -> Any:
        """Call it."""
        return await self._method(*arguments, **keywords)

    call = call_one
    choose = call_one
    __call__ = call_one


class GlobalLoggingActor:
    """The one place that flushes; the values themselves travel by otel_ml, without it.

    Each attribute is an endpoint: `init_backends`, `flush`, `register_fetcher`, `deregister_fetcher`, `has_fetcher`,
    `get_fetcher_count`, `shutdown`. A fetcher is anything with `flush(global_step, return_state=True)`, sync or async;
    it is needed for reductions of your own only.
    """

    def __init__(self, process_name: str | None = None) -> None:
        self._process_name = process_name
        self._fetchers: dict[str, Any] = {}
        self.init_backends: Endpoint = Endpoint(self._init_backends)
        self.flush: Endpoint = Endpoint(self._flush)
        self.register_fetcher: Endpoint = Endpoint(self._register)
        self.deregister_fetcher: Endpoint = Endpoint(self._deregister)
        self.has_fetcher: Endpoint = Endpoint(self._has)
        self.get_fetcher_count: Endpoint = Endpoint(self._count)
        self.shutdown: Endpoint = Endpoint(self._shutdown)

    async def _init_backends(self, config: Mapping[str, Mapping[str, Any]], global_step: int = 0) -> None:
        start(config, self._process_name, global_step)

    async def _register(self, fetcher: Any, name: str | None = None) -> None:
        self._fetchers[name or self._free_name()] = fetcher

    def _free_name(self) -> str:
        # Not how many there are: after one was taken out that number may be the name of another.
        names = (f"fetcher_{number}" for number in itertools.count())
        return next(name for name in names if name not in self._fetchers)

    async def _deregister(self, name: str) -> None:
        if self._fetchers.pop(name, None) is None:
            say("compat-forge", f"deregister_fetcher({name!r}): there is none of this name. Register it first.")

    async def _has(self, name: str) -> bool:
        return name in self._fetchers

    async def _count(self) -> int:
        return len(self._fetchers)

    async def _flush(self, global_step: int = 0) -> None:
        # Before the fetchers are asked: what this process records while they answer waits for the next flush.
        own = COLLECTOR.flush(global_step)
        answers = await asyncio.gather(*(_asked(name, one, global_step) for name, one in list(self._fetchers.items())))
        publish_merged([own, *(state for answer in answers for state in answer)], global_step)

    async def _shutdown(self) -> None:
        # In this order: what still waits needs the run, and shutdown() ends it. That one may take seconds, in which
        # the event loop of an actor has to go on.
        COLLECTOR.finish()
        COLLECTOR.forget()
        _LOGGERS.clear()
        await asyncio.to_thread(otel_ml.shutdown)


async def _asked(name: str, fetcher: Any, global_step: int) -> list[Mapping[str, Any]]:
    """Return the states of one fetcher; none, and said, where it fails: the others' flush goes on."""
    try:
        answer = fetcher.flush(global_step, return_state=True)
        # A fetcher that is not async has done its work by now: nothing bounds how long that takes.
        if inspect.isawaitable(answer):
            answer = await asyncio.wait_for(answer, FLUSH_TIMEOUT_S)
        return states_in(name, answer)
    except Exception as error:  # noqa: BLE001 (an actor fails in any way)
        say(
            "compat-forge",
            f"Fetcher {name!r} failed at a flush with {type(error).__name__}: {error}. The others are flushed; "
            "look at that process.",
        )
        return []


class MetricCollector:
    """torchforge's name for the collector of the process; every instance is the same one."""

    _only: ClassVar[MetricCollector | None] = None

    def __new__(cls) -> MetricCollector:
        """Return the one of this process."""
        if MetricCollector._only is None:
            MetricCollector._only = super().__new__(cls)
        return MetricCollector._only

    async def init_backends(
        self,
        metadata_per_controller_backend: Mapping[str, Any] | None = None,
        config: Mapping[str, Mapping[str, Any]] | None = None,
        global_step: int = 0,
        process_name: str | None = None,
        *,
        metadata_per_primary_backend: Mapping[str, Any] | None = None,
    ) -> None:
        """Take the logging modes from `config`; from now on values wait for `flush()`.

        Args:
            metadata_per_controller_backend: not used: there is one run, and the environment names it.
            config: of each backend, as for `GlobalLoggingActor.init_backends`.
            global_step: where a resumed job goes on.
            process_name: of this process.
            metadata_per_primary_backend: the first one's name in older versions.

        Raises:
            ConfigError: the configuration is wrong; everything that is, in one message.
        """
        del metadata_per_controller_backend, metadata_per_primary_backend
        start(config or {}, process_name, global_step)

    def push(self, metric: Metric) -> None:
        """Take a value."""
        COLLECTOR.push(metric)

    async def flush(self, global_step: int, return_state: bool = False) -> dict[str, State]:
        """Record at `global_step` what was pushed since the last flush.

        Args:
            global_step: the step.
            return_state: hand the states of samples and users' reductions to the caller, who merges them with
                those of other processes; else this process writes its own.
        """
        if not has_run():
            say(
                "compat-forge",
                "Cannot flush collected metrics: there is no run yet. Call init_backends() or otel_ml.init() first.",
            )
            return {}
        states = COLLECTOR.flush(global_step)
        if return_state:
            return states
        publish_merged([states], global_step)
        return {}

    async def shutdown(self) -> None:
        """Record what still waits."""
        COLLECTOR.finish()
        COLLECTOR.forget()


class LocalFetcherActor:
    """torchforge's actor for the collector of a process, with its endpoints; nothing has to be fetched by it here.

    Registered as a fetcher it brings the states of users' own reductions.

    Args:
        global_logger: not used.
        process_name: of this process.
    """

    def __init__(self, global_logger: Any = None, process_name: str | None = None) -> None:
        del global_logger
        self._process_name = process_name
        self._collector = MetricCollector()
        self.init_backends: Endpoint = Endpoint(self._init_backends)
        self.flush: Endpoint = Endpoint(self._collector.flush)
        self.shutdown: Endpoint = Endpoint(self._collector.shutdown)

    async def _init_backends(self, metadata: Any, config: Mapping[str, Any], global_step: int = 0) -> None:
        await self._collector.init_backends(metadata, config, global_step, self._process_name)


_LOGGERS: dict[str, GlobalLoggingActor] = {}


async def get_or_create_metric_logger(proc_mesh: Any = None, process_name: str | None = None) -> GlobalLoggingActor:
    """Return the logger of this process; with `proc_mesh` too, whose processes record without being registered."""
    del proc_mesh
    if not _LOGGERS:
        _LOGGERS["logger"] = GlobalLoggingActor(process_name)
    return _LOGGERS["logger"]


def start(config: Mapping[str, Mapping[str, Any] | None], process_name: str | None, global_step: int) -> None:
    """Start the run that `config` describes, where none is active, and take its modes.

    FORGE_DISABLE_METRICS makes it a no-op: no run begins of which nothing would be recorded.

    Args:
        config: backend → its options: `logging_mode` (`global_reduce` by default), W&B's `project`, `name`, `tags`,
            `notes`.
        process_name: of this process; an event of the run says which rank it is. It is not a role: values of all roles
            of torchforge meet under one name.
        global_step: the first step to flush.

    Raises:
        ConfigError: an option is wrong; all that are, in one message.
    """
    if are_metrics_off():
        return
    backends = {name: options or {} for name, options in config.items()}  # YAML's `console:` is None
    problems = [
        f"Backend {name!r}: logging_mode is {options['logging_mode']!r}, expected one of {_MODES}."
        for name, options in backends.items()
        if options.get("logging_mode") is not None and _mode(options["logging_mode"]) is None
    ]
    if problems:
        raise ConfigError(*problems)
    for name, options in backends.items():
        _say_unused(name, options)
    # One run has one project and one name: of several backends that give an option the last counts.
    merged = {key: value for options in backends.values() for key, value in options.items()}
    exporters = with_exporters_of_the_job(["jsonl", *config]) if config else None
    otel_ml.init(
        merged.get("project"),
        name=merged.get("name"),
        tags=merged.get("tags") or (),
        notes=merged.get("notes"),
        exporters=exporters,
    )
    if process_name is not None:
        otel_ml.event("forge.process", {"name": process_name})
    modes = [_mode(options.get("logging_mode")) or LoggingMode.GLOBAL_REDUCE for options in backends.values()]
    # Behind init(): at the end of the program what waits is recorded before the run ends, see `_at_exit()`.
    COLLECTOR.begin(modes, global_step)


def _mode(given: Any) -> LoggingMode | None:
    try:
        return given if isinstance(given, LoggingMode) else LoggingMode(str(given).lower())
    except ValueError:
        return None


def _say_unused(name: str, options: Mapping[str, Any]) -> None:
    unused = sorted(set(options) - _KNOWN)
    if options.get("per_rank_share_run"):
        unused.append("per_rank_share_run")
    if unused:
        say(
            "compat-forge",
            f"Backend {name!r}: {', '.join(unused)} has no meaning here: all ranks are in one run. "
            "What a backend needs is set where the service runs.",
        )

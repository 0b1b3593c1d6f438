"""The interface of an exporter: four verbs (docs/protocol.md §6.3).

::

    start(run) ──▶ export(records) … force_flush(timeout) … ──▶ shutdown(timeout, status)
                        │ returns, or raises
                        ├─ RetryableExportError: the same records come again, after a pause
                        ├─ RestartExporterError: they come to a new exporter, from its `position()`
                        ├─ PermanentExportError: those that are refused are set aside, the others come again
                        └─ anything else: three more tries, then as PermanentExportError; for ever where it is a
                           ConnectionError, a TimeoutError, or a disk or a memory that is full

The pipeline promises: one thread calls one exporter, never concurrently; no batch is empty; `seq`
ascends; steps ascend per (attempt, role, axis) except corrections; records are immutable; after
`shutdown` nothing comes. A record comes again where it is not sure that it is stored. Queueing, retry,
time-outs, thinning (`every`, also for an exporter whose constructor does not know it), self-telemetry
and logging are the pipeline's business.

The author promises: **what was exported survives SIGKILL**, from the moment at which `export` returns
where `position()` tells a number, and else from that at which `force_flush` returns, which is then
called after each `export`. Bounded time; typed failures; `shutdown` is safe twice and before `start`;
`start` on the folder or run of a killed predecessor resumes it, and `position()` then tells the last
`seq` that is stored, so that scalars are written exactly once. An exporter without a position stores
each at least once. `otel_ml_exporters.contract` holds an exporter to this, with one fixture of yours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from otel_ml_exporters.errors import ExporterClosedError, PermanentExportError
from otel_ml_exporters.records import Record, RunInfo, RunStatus

__all__ = ["Exporter", "every_problems", "names_problems", "renamed", "require_started", "timeout_problems"]

_Opened = TypeVar("_Opened")


class Exporter(ABC):
    """Base of all exporters. Configuration goes to the constructor and is checked there (`ConfigError`).

    A backend's docstring ends with four lines: **Guarantee**, **Ordering**, **Non-finite values**, **Names**.
    """

    every: int = 1
    """Export only steps that are multiples of this; thinning, never silent averaging. The pipeline applies it."""

    max_batch: int = 256
    """Most records a call of `export` gets."""

    max_delay: float = 0.0
    """Seconds the pipeline may wait to fill a batch (MLflow wants large ones)."""

    keeps_self_telemetry: bool = False
    """Whether it gets all of `otel_ml/…`, and not only what is not as it should be: a store for programs does."""

    @abstractmethod
    def start(self, run: RunInfo) -> None:
        """Open or resume the run in the backend.

        Raises:
            MissingDependencyError: the backend's package is not installed.
            ConfigError: the backend says that options or credentials are wrong.
            RetryableExportError: the backend is not reachable now; the pipeline calls again.

        Whatever it raises, `shutdown` follows, and the next try is that of a new exporter.
        """

    def position(self) -> int | None:
        """After `start`: the `seq` up to which the backend holds everything.

        0 where it holds nothing; None, the default, where the backend cannot tell: the pipeline's own mark is used,
        which it moves when `export` and `force_flush` have returned.
        """
        return None

    @abstractmethod
    def export(self, records: Sequence[Record]) -> None:
        """Write `records`, all or nothing as far as the backend can.

        A record of a kind the backend has no place for is ignored.

        Raises:
            RetryableExportError, PermanentExportError, ExporterClosedError
        """

    @property
    def is_intact(self) -> bool:
        """Whether what was stored is still there, as far as that can be told at once; asked before each batch.

        Where it is not, a new exporter is made, and gets everything again; what it still has it leaves out.
        """
        return True

    def describe(self, run: RunInfo) -> None:  # noqa: B027 (most backends have no place for it: it may be left out)
        """Take a name, tags or notes that the job gave later; called between two `export`s.

        Raises:
            RetryableExportError: the backend is not reachable now; the pipeline calls again.
        """

    def force_flush(self, timeout: float) -> None:  # noqa: B027 (most backends buffer nothing: an exporter may leave it out)
        """Hand everything exported so far to the backend, within `timeout` seconds."""

    @abstractmethod
    def shutdown(self, timeout: float, status: RunStatus | None) -> None:
        """Close within `timeout` seconds; `status` is the run's end, or None where only this process ends."""

    def foreseen(self, run: RunInfo) -> str | None:
        """Return what `notice` will be after `start`, where that is known before: a start may take longer than the job.

        Called as the job's own service begins, on another instance; None, the default, where nothing is known.
        """
        return None

    @property
    def place(self) -> str | None:
        """What tells where the exporter writes, by its options: two instances that say the same are refused.

        None where each instance has a place of its own, such as `RunInfo.folder`.
        """
        return None

    @property
    def url(self) -> str | None:
        """Where a person looks at this run (a file, a page), once started."""
        return None

    @property
    def notice(self) -> str | None:
        """A sentence for a person, reported once, after `start` or `export`, if something may surprise them."""
        return None


_SHOWN, _LONG = 5, 100
"""How many names are shown of those that a backend does not take, and how many characters of them."""


def renamed(exporter: str, keys: Mapping[str, str], where: str) -> str:
    """Return what an exporter says once, where its backend does not take all names as they are.

    Args:
        exporter: its name.
        keys: name → what it is called in the backend, of those that differ.
        where: the beginning of a sentence, up to its verb: what has all of them in the backend.

    Examples:
        >>> renamed("mlflow", {"mfu(%)": "mfu_percent"}, "The tag otel_ml.names.0 has")
        "mlflow: some names are not what it takes, and are written readably: 'mfu(%)' is 'mfu_percent'. The tag otel_ml.names.0 has all of them; read() and otel-ml know the originals."
    """  # noqa: E501 (a doctest)
    shown = ", ".join(f"{name[:_LONG]!r} is {key[:_LONG]!r}" for name, key in list(keys.items())[:_SHOWN])
    more = f" and {len(keys) - _SHOWN:,} more" if len(keys) > _SHOWN else ""
    return (
        f"{exporter}: some names are not what it takes, and are written readably: {shown}{more}. {where} all of them; "
        "read() and otel-ml know the originals."
    )


def every_problems(exporter: str, every: object) -> list[str]:
    """Return what is wrong with the option `every` of an exporter, for its `ConfigError`; nothing where it is fine.

    Examples:
        >>> every_problems("jsonl", 10), every_problems("jsonl", 0)
        ([], ['jsonl.every: expected a number of steps from 1, got 0.'])
    """
    problems = []
    if not isinstance(every, int) or every < 1:
        problems.append(f"{exporter}.every: expected a number of steps from 1, got {every!r}.")
    return problems


def names_problems(exporter: str, option: str, names: object) -> list[str]:
    """Return what is wrong with an option that is a name, or several.

    Examples:
        >>> names_problems("console", "metrics", "loss"), names_problems("console", "metrics", 5)
        ([], ['console.metrics: expected a name or a list of names, got 5.'])
    """
    problems = []
    # A text is a sequence, too, of its letters.
    every = [names] if isinstance(names, str) else names
    if not isinstance(every, Sequence) or not all(isinstance(name, str) for name in every):
        problems.append(f"{exporter}.{option}: expected a name or a list of names, got {names!r}.")
    return problems


def timeout_problems(exporter: str, seconds: object) -> list[str]:
    """Return what is wrong with the option `timeout` of an exporter that sends requests.

    Examples:
        >>> timeout_problems("otlp", 5), timeout_problems("otlp", "5")
        ([], ["otlp.timeout: expected seconds above 0 and up to 600, got '5'."])
    """
    problems = []
    # Written so that NaN, of which no comparison is true, is refused.
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds <= 600:
        problems.append(f"{exporter}.timeout: expected seconds above 0 and up to 600, got {seconds!r}.")
    return problems


def require_started(exporter: str, what: _Opened | None, *, is_closed: bool) -> _Opened:
    """Return what an exporter's `start()` has opened.

    Raises:
        ExporterClosedError: the exporter is shut down.
        PermanentExportError: it was not started.
    """
    if is_closed:
        raise ExporterClosedError(exporter)
    if what is None:
        raise PermanentExportError(f"{exporter}: export before start. Call start(run) first.", slug="exporter-order")
    return what

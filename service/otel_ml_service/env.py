"""THE table of the service's variables; `otel-ml env` and the docs are generated from it (docs/protocol.md §3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from otel_ml.variable import AnyVariable, Variable, choice, comma_separated, integer, size_bytes, switch, text, token

__all__ = ["VARIABLES", "address"]


def address(raw: str) -> tuple[str, int]:
    """Accept `host:port`; IPv6 hosts in brackets, port 0 for a free one.

    Examples:
        >>> address("127.0.0.1:4318"), address("[::1]:0")
        (('127.0.0.1', 4318), ('::1', 0))
    """
    host, colon, port = raw.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError("host:port, such as 127.0.0.1:4318")
    return host, int(port)


EXPORTERS: Final[Variable[tuple[str, ...]]] = Variable(
    "OTEL_ML_EXPORTERS", comma_separated, (), "Where the run is written, comma-separated; `none` for nowhere.",
    shown_default="jsonl, and tensorboard if installed",
)  # fmt: skip
DIR: Final = Variable("OTEL_ML_DIR", text, "./otel-ml-runs", "Folder of all runs.")
DIR_MAX: Final = Variable(
    "OTEL_ML_DIR_MAX", size_bytes, 10 * 2**30,
    "Most bytes of records kept on disk; beyond it the slowest exporter loses its place, and it is reported.",
    unit="bytes", shown_default="10 GiB",
)  # fmt: skip
JOURNAL_DIR: Final = Variable(
    "OTEL_ML_JOURNAL_DIR", text, "",
    "Folder of the journal: a disk of this host where `OTEL_ML_DIR` is on a network file system.",
    shown_default="in `OTEL_ML_DIR`",
)  # fmt: skip
QUEUE_MAX: Final = Variable(
    "OTEL_ML_QUEUE_MAX", size_bytes, 256 * 2**20,
    "Most bytes of requests acknowledged and not yet decided, in memory or in the journal, whichever is more; "
    "beyond it senders are told to come back.",
    unit="bytes", shown_default="256 MiB",
)  # fmt: skip
OPEN_MAX: Final = Variable(
    "OTEL_ML_OPEN_MAX", size_bytes, 2**30,
    "Most bytes of a run's open steps; beyond it the oldest close with what has arrived.",
    unit="bytes", shown_default="1 GiB",
)  # fmt: skip
RETAINED_MAX: Final = Variable(
    "OTEL_ML_RETAINED_MAX", size_bytes, 256 * 2**20,
    "Most bytes of a run's closed steps in memory, for late data; older ones are on the disk only.",
    unit="bytes", shown_default="256 MiB",
)  # fmt: skip
CLOSED_MAX: Final = Variable(
    "OTEL_ML_CLOSED_MAX", size_bytes, 2**30,
    "Most bytes of a run's closed steps on the disk, at most an eighth of `OTEL_ML_DIR_MAX`; a value that comes later "
    "for a name that its step has goes to `late.otlp`.",
    unit="bytes", shown_default="1 GiB",
)  # fmt: skip
CLOSED_HOURS: Final = Variable(
    "OTEL_ML_CLOSED_HOURS", integer(0), 24,
    "How long closed steps are kept there; time in which no process of the run is heard does not count.", unit="hours",
)  # fmt: skip
LATE_MAX: Final = Variable(
    "OTEL_ML_LATE_MAX", size_bytes, 2**30,
    "Most bytes of a run's `late.otlp`; what finds no room there is counted as dropped.",
    unit="bytes", shown_default="1 GiB",
)  # fmt: skip
SERIES_MAX: Final = Variable(
    "OTEL_ML_SERIES_MAX", integer(1), 100_000,
    "Most series (role, name, attributes) of a run; further ones are left out, counted and reported.",
)  # fmt: skip
TOP_RANKS: Final = Variable(
    "OTEL_ML_TOP_RANKS", integer(0), 0,
    "So many of the slowest and of the fastest ranks of each timer are in the table `otel_ml/top_ranks` of the run, "
    "every 100 steps and at its end; 0 for none.",
)  # fmt: skip
FINDINGS: Final = Variable(
    "OTEL_ML_FINDINGS", switch, True,
    "Whether the service looks in each step for slow and silent ranks, pauses and where the time goes; `off` publishes "
    "none of that, and spares its time.",
    shown_default="`on`",
)  # fmt: skip
FULL: Final = "full"
SELF: Final = Variable(
    "OTEL_ML_SELF", choice("problems", FULL), "problems",
    "Which of `otel_ml/*` backends get: `problems` for what is not as it should be (a loss, a lag, a rejected point), "
    "`full` for all. The run's folder has all of it in any case.",
)  # fmt: skip
LISTEN_GRPC: Final[Variable[tuple[str, int]]] = Variable(
    "OTEL_ML_LISTEN_GRPC", address, ("127.0.0.1", 4317),
    "Where `otel-ml serve` takes OTLP/gRPC (with the extra `grpc`).", shown_default="`127.0.0.1:4317`",
)  # fmt: skip
LISTEN_HTTP: Final[Variable[tuple[str, int]]] = Variable(
    "OTEL_ML_LISTEN_HTTP", address, ("127.0.0.1", 4318),
    "Where the service takes OTLP/HTTP; embedded, a free loopback port.", shown_default="`127.0.0.1:4318`",
)  # fmt: skip
TOKEN: Final = Variable(
    "OTEL_ML_TOKEN", token, "",
    "Bearer token for the service; `serve` on any non-loopback address demands it (or mTLS).", secret=True,
)  # fmt: skip
TOKEN_FILE: Final = Variable(
    "OTEL_ML_TOKEN_FILE", text, "",
    "File with bearer tokens, one a line, which `serve` takes beside `OTEL_ML_TOKEN`; read again when it changes.",
)  # fmt: skip
ALLOWED_LATENESS: Final = Variable(
    "OTEL_ML_ALLOWED_LATENESS", integer(0), 10_000, "How long a step waits for a rank that is quiet.", unit="ms"
)
END_SILENCE: Final = Variable(
    "OTEL_ML_END_SILENCE", integer(1), 300_000,
    "A run of which nobody was heard for this long has ended; programs that send no shutdown message end so.",
    unit="ms", shown_default="`300000` ms; embedded `30000` ms",
)  # fmt: skip
EMBEDDED_END_SILENCE: Final = 30_000
"""The same in embedded mode, where the job starts and ends with its service."""
EXPERIMENT_ID: Final = Variable("OTEL_ML_EXPERIMENT_ID", text, "", "Identity of the run.")
EXPERIMENT_NAME: Final = Variable("OTEL_ML_EXPERIMENT_NAME", text, "default", "W&B project, MLflow experiment, folder.")
RUN_NAME: Final = Variable("OTEL_ML_RUN_NAME", text, "", "Display name of the run.", shown_default="made of the id")

VARIABLES: Final[Sequence[AnyVariable]] = (
    EXPORTERS, DIR, JOURNAL_DIR, DIR_MAX, QUEUE_MAX, OPEN_MAX, RETAINED_MAX, CLOSED_MAX, CLOSED_HOURS, LATE_MAX,
    SERIES_MAX, TOP_RANKS, FINDINGS, SELF, LISTEN_GRPC, LISTEN_HTTP, TOKEN, TOKEN_FILE, ALLOWED_LATENESS, END_SILENCE,
    EXPERIMENT_ID, EXPERIMENT_NAME, RUN_NAME,
)  # fmt: skip
"""The service's variables; those it shares with the worker have the same meaning there."""

"""THE table of the worker's variables; `otel-ml env` and the docs are generated from it (docs/protocol.md §3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from otel_ml.variable import AnyVariable, Variable, boolean, choice, comma_separated, integer, size_bytes, text, token

__all__ = ["ASKING", "OF_THE_COLLECTOR", "OF_THE_SERVICE", "STANDARD", "VARIABLES", "key_values"]


def key_values(raw: str) -> Mapping[str, str]:
    """Accept `key=value` pairs, comma-separated, percent-encoded (OTel: W3C Baggage without properties).

    Examples:
        >>> key_values("team=rl,note=two%20words")
        {'team': 'rl', 'note': 'two words'}
    """
    found = {}
    for part in comma_separated(raw):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ValueError("key=value pairs separated by commas")
        found[_decoded(key)] = _decoded(value)
    return found


def _decoded(part: str) -> str:
    try:
        return unquote(part.strip(), errors="strict")
    except UnicodeDecodeError:
        raise ValueError("percent-encoded UTF-8") from None


def _spool_bytes(raw: str) -> int:
    size = size_bytes(raw)
    if not 2**20 <= size <= 2**62:
        raise ValueError("a size of at least 1 MiB, such as '256 MiB'")
    return size


EXPERIMENT_ID: Final = Variable(
    "OTEL_ML_EXPERIMENT_ID", text, "",
    "Identity of the run: all processes of a job have the same. The same id later continues the run.",
    shown_default="from the launcher, else new",
)  # fmt: skip
EXPERIMENT_NAME: Final = Variable(
    "OTEL_ML_EXPERIMENT_NAME", text, "default", "W&B project, MLflow experiment, folder of the run."
)
RUN_NAME: Final = Variable("OTEL_ML_RUN_NAME", text, "", "Display name of the run.", shown_default="made of the id")
RANK: Final[Variable[int | None]] = Variable(
    "OTEL_ML_RANK", integer(0), None, "Global rank.", shown_default="from the launcher, else 0"
)
WORLD_SIZE: Final[Variable[int | None]] = Variable(
    "OTEL_ML_WORLD_SIZE", integer(1), None, "Ranks of this role.", shown_default="from the launcher, else 1"
)
LOCAL_RANK: Final[Variable[int | None]] = Variable(
    "OTEL_ML_LOCAL_RANK", integer(0), None, "Rank on this host.", shown_default="from the launcher, else 0"
)
MODE: Final = Variable(
    "OTEL_ML_MODE", choice("auto", "embedded", "remote"), "auto",
    "`embedded` starts a service on this host, `remote` sends to the OTLP endpoint, "
    "`auto` is remote where an endpoint is set.",
)  # fmt: skip
EXPORTERS: Final[Variable[tuple[str, ...]]] = Variable(
    "OTEL_ML_EXPORTERS", comma_separated, (), "Where the run is written, comma-separated; `none` for nowhere.",
    shown_default="jsonl, and tensorboard if installed",
)  # fmt: skip
CONSOLE: Final = Variable(
    "OTEL_ML_CONSOLE", choice("auto", "off"), "auto", "The lines of global rank 0 on stderr; `off` for none."
)
DIR: Final = Variable("OTEL_ML_DIR", text, "./otel-ml-runs", "Folder of all runs.")
FLUSH_INTERVAL: Final = Variable(
    "OTEL_ML_FLUSH_INTERVAL", integer(10), 1000,
    "What was recorded is sent at the latest after this time; sooner, at the first step boundary after half of it. "
    "Heartbeats are, too: above 1000 a live process may be taken for dead. "
    "Spans of jobs with 128 ranks and more: at the latest after three times this.",
    unit="ms",
)  # fmt: skip
TIMER_LEVEL: Final = Variable(
    "OTEL_ML_TIMER_LEVEL", integer(0), 1, "Timers above this level cost a lookup and record nothing."
)
TRACES: Final = Variable(
    "OTEL_ML_TRACES", choice("off", "timers"), "timers", "`timers`: each timer is a span too; `off`: none is."
)
SPANS_PER_STEP: Final = Variable(
    "OTEL_ML_SPANS_PER_STEP", integer(0), 100, "Most spans per rank and step; the rest is counted."
)
TOKEN: Final = Variable("OTEL_ML_TOKEN", token, "", "Bearer token for the service.", secret=True)
TOKEN_FILE: Final = Variable(
    "OTEL_ML_TOKEN_FILE", text, "",
    "File with bearer tokens, one a line, instead of `OTEL_ML_TOKEN`: a process shows the first, and reads it again "
    "where the receiver does not take it; `serve` takes all, and reads them again when the file changes.",
)  # fmt: skip
STRICT: Final = Variable("OTEL_ML_STRICT", boolean, False, "Raise instead of count and say: for tests.")
CAPTURE: Final = Variable(
    "OTEL_ML_CAPTURE", choice("auto", "off"), "auto",
    "Global rank 0 keeps git commit and diff, command line, host, user and package list with the run (secrets "
    "redacted); `off` keeps none.",
)  # fmt: skip
SPOOL_MAX: Final = Variable(
    "OTEL_ML_SPOOL_MAX", _spool_bytes, 256 * 2**20,
    "Most bytes a process keeps for an endpoint that does not answer; beyond it the oldest go, and are counted.",
    shown_default="256 MiB",
)  # fmt: skip
EXIT_WAIT: Final[Variable[int | None]] = Variable(
    "OTEL_ML_EXIT_WAIT", integer(0), None,
    "Most time a process waits at its end until what it recorded is delivered.", unit="s",
    shown_default="5; where the service ends with the job, as long as delivery gets on",
)  # fmt: skip
TRACES_TO: Final = Variable(
    "OTEL_ML_TRACES_ENDPOINT", text, "",
    "Base URL of the OTLP/HTTP receiver to which the exporter `traces` sends the run's spans, such as Jaeger.",
    shown_default="none",
)  # fmt: skip
PARENT: Final = Variable(
    "OTEL_ML_PARENT", text, "",
    "Written by `init()` for its child processes, never by people: instance, pid, rank of the parent.",
)  # fmt: skip

VARIABLES: Final[Sequence[AnyVariable]] = (
    EXPERIMENT_ID, EXPERIMENT_NAME, RUN_NAME, RANK, WORLD_SIZE, LOCAL_RANK, MODE, EXPORTERS, CONSOLE, DIR,
    FLUSH_INTERVAL, TIMER_LEVEL, TRACES, SPANS_PER_STEP, TOKEN, TOKEN_FILE, STRICT, CAPTURE, SPOOL_MAX, EXIT_WAIT,
    TRACES_TO, PARENT,
)  # fmt: skip
"""The worker's own variables, in the order of the docs."""

ENDPOINT: Final = Variable(
    "OTEL_EXPORTER_OTLP_ENDPOINT", text, "", "Base URL of a Collector or of `otel-ml serve`.", shown_default="none"
)
METRICS_ENDPOINT: Final = Variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", text, "", "Full URL for metrics.")
TRACES_ENDPOINT: Final = Variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", text, "", "Full URL for spans.")
LOGS_ENDPOINT: Final = Variable("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", text, "", "Full URL for events.")
PROTOCOL: Final = Variable(
    "OTEL_EXPORTER_OTLP_PROTOCOL", choice("http/protobuf", "grpc"), "http/protobuf",
    "`http/protobuf` is light and fork-safe; `grpc` needs `pip install 'otel-ml[grpc]'`.",
)  # fmt: skip
HEADERS: Final[Variable[Mapping[str, str]]] = Variable(
    "OTEL_EXPORTER_OTLP_HEADERS", key_values, {}, "Headers of every request.", secret=True
)
CERTIFICATE: Final = Variable("OTEL_EXPORTER_OTLP_CERTIFICATE", text, "", "CA certificates (PEM) to trust.")
CLIENT_KEY: Final = Variable("OTEL_EXPORTER_OTLP_CLIENT_KEY", text, "", "Private key (PEM) for mTLS.")
CLIENT_CERTIFICATE: Final = Variable("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", text, "", "Certificate (PEM) for mTLS.")
INSECURE: Final = Variable(
    "OTEL_EXPORTER_OTLP_INSECURE", boolean, False, "gRPC without TLS where the endpoint has no scheme."
)
COMPRESSION: Final = Variable(
    "OTEL_EXPORTER_OTLP_COMPRESSION", choice("auto", "gzip", "none"), "auto", "`auto`: gzip, but not on loopback."
)
SERVICE_NAME: Final = Variable("OTEL_SERVICE_NAME", text, "", "The role.", shown_default="trainer")
RESOURCE_ATTRIBUTES: Final[Variable[Mapping[str, str]]] = Variable(
    "OTEL_RESOURCE_ATTRIBUTES", key_values, {}, "Attributes of the process; `service.name` is the role."
)
SDK_DISABLED: Final = Variable("OTEL_SDK_DISABLED", boolean, False, "Record nothing at all.")
LOG_LEVEL: Final = Variable(
    "OTEL_LOG_LEVEL", choice("trace", "debug", "info", "warn", "error", "fatal"), "info",
    "`error` and above keep otel_ml from saying anything on stderr but its errors.",
)  # fmt: skip

STANDARD: Final[Sequence[AnyVariable]] = (
    ENDPOINT, METRICS_ENDPOINT, TRACES_ENDPOINT, LOGS_ENDPOINT, PROTOCOL, HEADERS, CERTIFICATE, CLIENT_KEY,
    CLIENT_CERTIFICATE, INSECURE, COMPRESSION, SERVICE_NAME, RESOURCE_ATTRIBUTES, SDK_DISABLED, LOG_LEVEL,
)  # fmt: skip
"""OpenTelemetry's variables that the worker honors, with their meaning."""

ASKING: Final[Sequence[AnyVariable]] = (
    EXPERIMENT_ID, EXPERIMENT_NAME, RUN_NAME, RANK, WORLD_SIZE, LOCAL_RANK, MODE, EXPORTERS, DIR, PARENT,
    ENDPOINT, METRICS_ENDPOINT, TRACES_ENDPOINT, LOGS_ENDPOINT,
)  # fmt: skip
"""Those that ask for a run where nobody calls `init()`: they name it, its place in the job or where it goes (ADR 0023).

All others only say how a run is recorded, and are often set for every program of a machine.
"""

OF_THE_SERVICE: Final = frozenset({
    "OTEL_ML_JOURNAL_DIR", "OTEL_ML_DIR_MAX", "OTEL_ML_QUEUE_MAX", "OTEL_ML_OPEN_MAX", "OTEL_ML_RETAINED_MAX",
    "OTEL_ML_CLOSED_MAX", "OTEL_ML_CLOSED_HOURS", "OTEL_ML_LATE_MAX", "OTEL_ML_SERIES_MAX", "OTEL_ML_SELF",
    "OTEL_ML_TOP_RANKS", "OTEL_ML_FINDINGS", "OTEL_ML_LISTEN_GRPC", "OTEL_ML_LISTEN_HTTP",
    "OTEL_ML_ALLOWED_LATENESS", "OTEL_ML_END_SILENCE",
})  # fmt: skip
"""Names of the service's own variables, which may not be installed here; what they mean is in its table."""

OF_THE_COLLECTOR: Final = frozenset({
    "OTEL_ML_QUEUE", "OTEL_ML_QUEUE_BYTES", "OTEL_ML_SERVICE", "OTEL_ML_SERVICE_1", "OTEL_ML_SERVICE_2",
    "OTEL_ML_GATEWAY", "OTEL_ML_GATEWAY_GRPC", "OTEL_ML_GATEWAY_HTTP", "OTEL_ML_GATEWAY_HEALTH", "OTEL_ML_AGENT_GRPC",
    "OTEL_ML_AGENT_HTTP", "OTEL_ML_AGENT_HEALTH", "OTEL_ML_SCRAPE", "OTEL_ML_SCRAPE_INTERVAL", "OTEL_ML_RECORDING",
    "OTEL_ML_TLS_CERTIFICATE", "OTEL_ML_TLS_KEY", "OTEL_ML_TLS_CA",
})  # fmt: skip
"""Names that the configurations in `collector-config/` read."""

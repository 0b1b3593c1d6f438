"""`otel-ml serve`."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from pathlib import Path

import click

from otel_ml.env import LOG_LEVEL
from otel_ml.wire.rendezvous import Rendezvous
from otel_ml_exporters.registry import split_name
from otel_ml_service.cli.parameters import EXPORTERS
from otel_ml_service.config import ServiceConfig
from otel_ml_service.live_runs.run_log import LogLines, OutputLog
from otel_ml_service.own_parent import leave_starter
from otel_ml_service.receiver.connection_limits import MORE_FILES, MOST_CONNECTIONS, free_connections
from otel_ml_service.serve import serve
from otel_ml_service.service import Service
from otel_ml_service.ui.pages_of_a_job import pages_of

__all__ = ["command", "job_settings"]


@click.command("serve", epilog="Example: otel-ml serve --to jsonl,wandb --http 127.0.0.1:4318")
@click.option(
    "--to",
    "exporters",
    type=EXPORTERS,
    default=(),
    show_default="OTEL_ML_EXPORTERS, else jsonl, and tensorboard if installed",
    help="Exporters, comma-separated; their options are in --config.",
)
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="otel-ml.yaml: exporters with their options, tokens, TLS, limits.",
)
@click.option(
    "--dir",
    "base",
    type=click.Path(path_type=Path, file_okay=False),
    show_default="OTEL_ML_DIR, else ./otel-ml-runs",
    help="Folder of all runs.",
)
@click.option(
    "--http", metavar="HOST:PORT", help="Address of OTLP/HTTP.", show_default="OTEL_ML_LISTEN_HTTP, else 127.0.0.1:4318"
)
@click.option(
    "--grpc", metavar="HOST:PORT", help="Address of OTLP/gRPC.", show_default="OTEL_ML_LISTEN_GRPC, else 127.0.0.1:4317"
)
@click.option("--embedded", is_flag=True, help="Serve the one run of this host's job; `otel_ml.init()` does that.")
@click.option("--rendezvous", type=click.Path(path_type=Path), help="Folder where the job finds an embedded service.")
@click.option("--page", is_flag=True, help="With --embedded: the run's page on a free port of 127.0.0.1, by a token.")
def command(
    exporters: tuple[str, ...],
    file: Path | None,
    base: Path | None,
    http: str | None,
    grpc: str | None,
    embedded: bool,
    rendezvous: Path | None,
    page: bool,
) -> None:
    """Run the service until SIGTERM or Ctrl-C: receive OTLP, align by step, reduce, write one run to each backend.

    On an address that is not loopback it demands a token (OTEL_ML_TOKEN, OTEL_ML_TOKEN_FILE) or client certificates.
    """
    if embedded != (rendezvous is not None):
        raise click.UsageError("--embedded and --rendezvous FOLDER belong together; leave both out to serve many runs.")
    # First of all: a program that waits for all of its children would wait for its service, too.
    starter = 0 if rendezvous is None else leave_starter(Rendezvous(rendezvous))
    # Behind `leave_starter`, which may have another process go on as the service.
    handler = OutputLog(sys.stderr)
    handler.setFormatter(LogLines())
    logging.basicConfig(level=_LEVELS[LOG_LEVEL.read().value], handlers=[handler])
    config = ServiceConfig.load(
        exporters=exporters, file=file, directory=base, http=http, grpc=grpc, rendezvous=rendezvous
    )
    if not embedded:
        serve(config, _say_where)
    # The page shows what the exporter `jsonl` writes: while the service has `run.db` open, nobody else can read that.
    elif page and any(split_name(name)[0] == "jsonl" for name in config.exporters) and (pages := pages_of(config.dir)):
        serve(config, lambda _: pages.serve_when_asked(), pages=pages.address, starter=starter)
    else:
        serve(config, _say_nothing, starter=starter)


_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}
"""OpenTelemetry's names of log levels."""


def _say_nothing(service: Service) -> None:
    """Leave the terminal to the job."""


def _say_where(service: Service) -> None:
    """Say where the service listens, and what a job needs to send to it.

    Nothing is imported for it: it may be short of open files by now, and a service does not end for that.
    """
    grpc = f" and gRPC on {service.grpc_address[0]}:{service.grpc_address[1]}" if service.grpc_address else ""
    lines = [
        f"otel_ml: OTLP/HTTP on {service.endpoint}{grpc} → {', '.join(service.exporters)}",
        *job_settings(service.endpoint, demands_a_token=service.demands_a_token),
        f"  {_most_connections()}",
    ]
    lines.append("Ctrl-C delivers the steps that are closed, and ends it; open ones go on at the next start.")
    with suppress(OSError, ValueError):  # nobody reads it
        sys.stderr.write("\n".join([*lines, ""]))
        sys.stderr.flush()


def job_settings(endpoint: str, *, demands_a_token: bool) -> list[str]:
    """Return the lines that a job's shell needs to send to `endpoint`, the base URL on which the service listens."""
    scheme, _, address = endpoint.partition("://")
    host, _, port = address.rpartition(":")
    # An address to listen on, and none to send to.
    on_all = host in {"0.0.0.0", "[::]"}
    lines = [f"  export OTEL_EXPORTER_OTLP_ENDPOINT={scheme}://HOST:{port}  # HOST: a name of this host"]
    if not on_all:
        lines = [f"  export OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}"]
    if scheme == "https":
        lines.append("  export OTEL_EXPORTER_OTLP_CERTIFICATE=FILE  # of the authority that signed its certificate")
    if demands_a_token:
        lines.append('  export OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20$OTEL_ML_TOKEN"')
    return lines


def _most_connections() -> str:
    """Say how many ranks can be connected, and what to do where those of a large job cannot."""
    connections = free_connections()
    said = f"takes {connections:,} connections at once: each rank has one, or each Collector"
    return said if connections >= MOST_CONNECTIONS else f"{said}. For more, {MORE_FILES}"

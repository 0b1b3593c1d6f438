"""`otel-ml serve`."""

from __future__ import annotations

from pathlib import Path

import click

from otel_ml_exporters.cli.parameters import EXPORTERS

__all__ = ["command"]


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
    "--config", "file", type=click.Path(path_type=Path, dir_okay=False), help="otel-ml.yaml: exporters and their options."
)
@click.option("--dir", "base", type=click.Path(path_type=Path, file_okay=False), help="Folder of all runs.")
@click.option("--http", metavar="HOST:PORT", help="Address of OTLP/HTTP.", show_default="OTEL_ML_LISTEN_HTTP")
@click.option("--grpc", metavar="HOST:PORT", help="Address of OTLP/gRPC.", show_default="OTEL_ML_LISTEN_GRPC")
@click.option("--embedded", is_flag=True, help="Serve the one run of this host's job; `otel_ml.init()` does that.")
@click.option("--rendezvous", type=click.Path(path_type=Path), help="Folder where the job finds an embedded service.")
def command(
    exporters: tuple[str, ...],
    file: Path | None,
    base: Path | None,
    http: str | None,
    grpc: str | None,
    embedded: bool,
    rendezvous: Path | None,
) -> None:
    """Run the service until SIGTERM or Ctrl-C: receive OTLP, align by step, reduce, write one run to each backend.

    On another address than loopback it demands OTEL_ML_TOKEN or client certificates.
    """

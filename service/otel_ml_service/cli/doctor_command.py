"""`otel-ml doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import click

from otel_ml_service.cli.checks import (
    Check,
    endpoint_checks,
    folder_checks,
    package_checks,
    port_checks,
    setting_checks,
)
from otel_ml_service.cli.parameters import dir_option
from otel_ml_service.cli.screen import Screen, screen

__all__ = ["command"]

_MARKS = {"ok": ("✓", "green"), "note": ("·", "dim"), "wrong": ("✗", "bold red")}


@click.command("doctor", epilog="Examples: otel-ml doctor · otel-ml doctor --service http://10.0.0.7:4318")
@dir_option
@click.option(
    "--service",
    metavar="URL",
    help="HTTP address of the otel_ml service, where the endpoint is a Collector in front of it.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a check, for programs.")
def command(base: Path, service: str | None, as_json: bool) -> None:
    """Check packages, settings, disk, ports, and that an otel_ml service answers behind the configured endpoint.

    Sends one probe, which no run keeps. Fails (status 1) where something is wrong, and says what to do.
    """
    output = screen()
    wrong = 0
    for title, checks in (
        ("packages", package_checks()),
        ("settings", setting_checks()),
        ("folder", folder_checks(base)),
        ("ports", port_checks()),
        ("telemetry", endpoint_checks(service)),
    ):
        # All of a subject before the first is printed: a check of a network takes seconds, and its lines stand
        # together.
        found = list(checks)
        wrong += sum(check.state == "wrong" for check in found)
        _print(output, title, found, as_json)
    if wrong:
        raise click.exceptions.Exit(1)


def _print(output: Screen, title: str, checks: Iterable[Check], as_json: bool) -> None:
    for check in checks:
        if as_json:
            click.echo(json.dumps({"about": title, "state": check.state, "found": check.found, "do": check.do}))
            continue
        mark, style = _MARKS[check.state]
        output.hanging(f"{mark} {title:<10} ", check.found, style=style if check.state != "ok" else None)
        if check.do:
            # As wide as mark and title above.
            output.hanging(" " * 13 + "→ ", check.do, style="yellow" if check.state == "wrong" else "dim")

"""What this host has for a run: packages that work, settings that can be read, a folder with room, free ports."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from otel_ml import env as worker
from otel_ml._internal.lifecycle.unknown_settings import unknown_settings
from otel_ml._internal.native import native
from otel_ml.endpoint import endpoint_of
from otel_ml.exceptions import MissingDependencyError, OtelMLError
from otel_ml.quantities import size
from otel_ml_exporters.registry import check_installed, exporter_class, shown_failure
from otel_ml_service import env
from otel_ml_service.cli.checks.check import Check
from otel_ml_service.cli.checks.probe import probe, service_version
from otel_ml_service.cli.packages import OPTIONAL_PACKAGES, installed_version
from otel_ml_service.env import DIR_MAX
from otel_ml_service.env import VARIABLES as SERVICE_VARIABLES
from otel_ml_service.exporter_makers import NO_EXPORTER
from otel_ml_service.findings.wording import plural
from otel_ml_service.process_limits import most_files_of_a_service
from otel_ml_service.receiver.connection_limits import FEWER_CONNECTIONS, MORE_FILES, MOST_CONNECTIONS
from otel_ml_service.stored_runs.run_folders import run_folders

__all__ = ["folder_checks", "package_checks", "port_checks", "setting_checks"]

_BROKEN = {
    ("mlflow", "3.18.0"): "its parts mlflow-skinny and mlflow-tracing were never published",
}
"""Releases that cannot work; keep in step with the exclusions in `pyproject.toml`."""

_LEAKING = {"1.45.0", "1.45.1"}
"""opentelemetry-sdk before 1.45.2 keeps the state of every attribute set for ever, also with delta temporality."""


def package_checks() -> Iterator[Check]:
    """Yield what is installed, what is not, and what cannot work."""
    ours = installed_version("otel-ml") or "(not installed: running from its sources)"
    yield Check("ok", f"otel-ml {ours}, Python {platform.python_version()}")
    yield _compiled_part()
    sdk = installed_version("opentelemetry-sdk")
    if sdk in _LEAKING:
        yield Check(
            "note",
            f"opentelemetry-sdk {sdk} keeps the state of every attribute set of your own OTel instruments for ever",
            "pip install -U 'opentelemetry-sdk>=1.45.2' (what otel_ml records is not affected)",
        )
    else:
        yield Check("ok", f"opentelemetry-sdk {sdk}")
    for package, extra in OPTIONAL_PACKAGES.items():
        version = installed_version(package)
        if version is None:
            yield Check("note", f"{package} is not installed", f"pip install 'otel-ml[{extra}]'")
        elif (package, version) in _BROKEN:
            yield Check(
                "wrong",
                f"{package} {version} does not work: {_BROKEN[package, version]}",
                f"pip install '{package}!={version}'",
            )
        else:
            yield Check("ok", f"{package} {version}")


def _compiled_part() -> Check:
    if native is not None:
        return Check("ok", "otel_ml's compiled part is there")
    return Check(
        "note",
        "otel_ml has no compiled part: it records the same without, and recording takes longer",
        "pip install --force-reinstall --no-deps --no-binary otel-ml otel-ml (needs a C compiler and Python's headers)",
    )


def setting_checks() -> Iterator[Check]:
    """Yield what is wrong with variables, those nobody reads, and exporters that are asked for and cannot be had."""
    # By name, as both programs read some of them, and a problem is to be told once.
    variables = {variable.name: variable for variable in (*worker.VARIABLES, *SERVICE_VARIABLES, *worker.STANDARD)}
    problems = [setting.problem for variable in variables.values() if (setting := variable.read()).problem]
    for problem in problems:
        yield Check("wrong", str(problem), "otel-ml env lists all settings; until then the default is in effect")
    if not problems:
        yield Check("ok", "every variable can be read")
    for name, meant in unknown_settings(os.environ).items():
        if meant:
            yield Check("wrong", f"{name} is not a setting", f"set {meant}, if that is meant, and unset {name}")
        else:
            yield Check("note", f"{name} is not a setting of otel_ml: a plug-in may read it", f"else unset {name}")
    asked = worker.EXPORTERS.read().value
    # `OTEL_ML_EXPORTERS=none` asks for none, and does not name one.
    for name in asked if asked != (NO_EXPORTER,) else ():
        yield from _exporter_check(name)


def _exporter_check(name: str) -> Iterator[Check]:
    try:
        exporter_class(name)
        check_installed(name)
    except MissingDependencyError as error:
        yield Check("wrong", f"OTEL_ML_EXPORTERS names {name!r}, and {error.package!r} is not installed",
                    f"pip install 'otel-ml[{error.extra}]'")  # fmt: skip
    except OtelMLError as error:
        yield Check("wrong", f"OTEL_ML_EXPORTERS: {error}", "otel-ml exporters lists them")
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a plug-in's own code; the other checks follow)
        found = f"OTEL_ML_EXPORTERS names {name!r}, and {shown_failure(error)}"
        yield Check("wrong", found, "leave it out, or update its package")


_SCARCE = 2**30
"""One GiB: what the engine may hold in open steps, which a crash must find room for."""


def folder_checks(base: Path) -> Iterator[Check]:
    """Yield whether the folder of all runs can be written, how full the disk is, and how much runs take."""
    # The folder itself is made with the first run; until then the nearest one above it says whether that works.
    try:
        existing = next(path for path in (base.absolute(), *base.absolute().parents) if path.exists())
    except OSError as error:  # a name that no disk takes, or a folder above it that is closed to this user
        yield Check("wrong", f"{str(base)!r} cannot be used: {error.strerror}", "set OTEL_ML_DIR to a folder of yours")
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Check("wrong", f"{str(existing)!r} cannot be written", "set OTEL_ML_DIR to a folder of yours")
        return
    free = shutil.disk_usage(existing).free
    if free < _SCARCE:
        yield Check("wrong", f"only {size(free)} are free for {str(base)!r}", "otel-ml gc, or another OTEL_ML_DIR")
    else:
        yield Check("ok", f"{str(base)!r} can be written, {size(free)} are free")
    runs = run_folders(base)
    taken, most = sum(run.size() for run in runs), int(DIR_MAX.read().value)
    verb = "takes" if len(runs) == 1 else "take"
    state = f"{plural(len(runs), 'run')} {verb} {size(taken)} of {size(most)} (OTEL_ML_DIR_MAX)"
    if taken > most:
        yield Check("wrong", state, "otel-ml gc removes the oldest")
    else:
        yield Check("ok", state)


def port_checks() -> Iterator[Check]:
    """Yield for each address of `otel-ml serve` whether it is free, ours, or somebody else's; and who can connect."""
    for variable in (env.LISTEN_GRPC, env.LISTEN_HTTP):
        host, port = variable.read().value
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if _is_free(host, port):
            yield Check("ok", f"{address} is free ({variable.name})")
        elif _is_ours(address, is_grpc=variable is env.LISTEN_GRPC):
            yield Check("ok", f"an otel_ml service listens on {address} ({variable.name})")
        else:
            yield Check(
                "note",
                f"{address} is in use by another program ({variable.name})",
                f"embedded mode does not need it; for `otel-ml serve` set {variable.name} to a free address",
            )
    yield _connections_check()


def _connections_check() -> Check:
    # As a service counts them: of its open files some are its own.
    connections = max(0, min(MOST_CONNECTIONS, most_files_of_a_service()))
    found = f"a service that is started here takes {connections:,} connections at once, one a rank or Collector"
    if connections == MOST_CONNECTIONS:
        return Check("ok", found)
    return Check("note", found, f"for a job of more ranks {MORE_FILES}, or {FEWER_CONNECTIONS}")


def _is_ours(address: str, *, is_grpc: bool) -> bool:
    # With the token and the certificates of this shell: a service that wants them answers nobody else.
    asks = replace(endpoint_of(os.environ, []), signals={}, protocol="grpc" if is_grpc else "http/protobuf")
    endpoints = [replace(asks, url=f"{scheme}://{address}") for scheme in ("http", "https")]
    if is_grpc:
        return any(probe(endpoint).is_ours for endpoint in endpoints)
    return any(service_version(endpoint.url, endpoint) is not None for endpoint in endpoints)


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closing(socket.socket(family)) as probe:
        # As servers do: an address whose last connections have only just ended is not taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True

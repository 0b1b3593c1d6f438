"""Variables named as ours that nobody reads: misspelled, or a plug-in's own."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from otel_ml import env

__all__ = ["misspelled", "unknown_settings"]

_PREFIXES = ("OTEL_ML_", "OTEL_EXPORTER_OTLP_", "OTEL_")
"""The longer one first; `OTEL_ML_ENDPOINT` is meant to be OpenTelemetry's."""

_ALIKE = 0.8
"""How alike two names are, without prefix, where one is taken for the other; a plug-in's own name is less so."""

_NEARLY_ALIKE = 0.95
"""How alike they are with their prefix: OpenTelemetry has names of its own that differ from these by a word."""

_OF_OTHERS: Mapping[str, str] = {
    "EXPERIMENT": "EXPERIMENT_NAME",
    "PROJECT": "EXPERIMENT_NAME",
    "RUN": "RUN_NAME",
    "NAME": "RUN_NAME",
    "ID": "EXPERIMENT_ID",
    "RUN_ID": "EXPERIMENT_ID",
    "ROLE": "SERVICE_NAME",
    "WORLD": "WORLD_SIZE",
    "DIRECTORY": "DIR",
    "FOLDER": "DIR",
    "OUTPUT_DIR": "DIR",
    "LOG_DIR": "DIR",
    "RUN_DIR": "DIR",
    "RUNS_DIR": "DIR",
    "BACKENDS": "EXPORTERS",
    "LOGGERS": "EXPORTERS",
    "QUIET": "CONSOLE",
    "SILENT": "CONSOLE",
}
"""What W&B, MLflow and others call it → what it is here, both without prefix."""


def unknown_settings(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that are set and that nobody is known to read → the one that may be meant, or an empty text.

    Those with another prefix than `OTEL_ML_` are others' own, unless they are nearly a setting.

    Examples:
        >>> unknown_settings({"OTEL_ML_EXPORTER": "mlflow", "OTEL_ML_DIR": "runs", "OTEL_ML_ACME_KEY": "x"})
        {'OTEL_ML_ACME_KEY': '', 'OTEL_ML_EXPORTER': 'OTEL_ML_EXPORTERS'}
        >>> unknown_settings({"OTEL_EXPORTER_OLTP_ENDPOINT": "http://gateway:4318", "OTEL_TRACES_EXPORTER": "otlp"})
        {'OTEL_EXPORTER_OLTP_ENDPOINT': 'OTEL_EXPORTER_OTLP_ENDPOINT'}
    """
    known = {variable.name for variable in (*env.VARIABLES, *env.STANDARD)} | env.OF_THE_SERVICE | env.OF_THE_COLLECTOR
    unknown = sorted(name for name in environ if name.upper().startswith("OTEL") and name not in known)
    meant = {name: _near(name) if name.startswith("OTEL_ML_") else _nearly(name, known) for name in unknown}
    return {name: near for name, near in meant.items() if near or name.startswith("OTEL_ML_")}


def misspelled(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that is set and not read, and may mean one that is.

    Examples:
        >>> misspelled({"OTEL_ML_EXPORTER": "mlflow", "OTEL_ML_ACME_KEY": "x"})
        ['OTEL_ML_EXPORTER: there is no such setting. Did you mean OTEL_ML_EXPORTERS?']
    """
    return [
        f"{name}: there is no such setting. Did you mean {meant}?"
        for name, meant in unknown_settings(environ).items()
        if meant
    ]


def _near(name: str) -> str:
    import difflib  # where something is wrong: most programs never load it

    meant = [variable.name for variable in (*env.VARIABLES, *env.STANDARD)] + sorted(env.OF_THE_SERVICE)
    # Of equal ends the first of the table counts, which is ours: the last one written stays.
    by_end = {_end(known): known for known in reversed(meant)}
    if (end := _end(name)) in _OF_OTHERS:
        return by_end[_OF_OTHERS[end]]
    near = difflib.get_close_matches(end, by_end, n=1, cutoff=_ALIKE)
    return by_end[near[0]] if near else ""


def _end(name: str) -> str:
    prefix = next(prefix for prefix in _PREFIXES if name.startswith(prefix))
    return name.removeprefix(prefix)


def _nearly(name: str, known: Collection[str]) -> str:
    """Return the setting that a name is but for its case, an underscore of its prefix, or a letter."""
    import difflib

    # `OTELML_DIR`, `OTEL_MLDIR` and `otel_ml_dir` are all meant to be `OTEL_ML_DIR`.
    written = re.sub("^OTEL_?ML_?", "OTEL_ML_", name.upper())
    if written.startswith("OTEL_ML_"):
        return written if written in known else _near(written)
    near = difflib.get_close_matches(written, known, n=1, cutoff=_NEARLY_ALIKE)
    return near[0] if near else ""

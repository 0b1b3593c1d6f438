"""Variables named as ours that nobody reads: misspelled, or a plug-in's own."""

from __future__ import annotations

from collections.abc import Mapping

from otel_ml import env

__all__ = ["misspelled", "unknown_settings"]

_PREFIXES = ("OTEL_ML_", "OTEL_EXPORTER_OTLP_", "OTEL_")
"""The longer one first; `OTEL_ML_ENDPOINT` is meant to be OpenTelemetry's."""

_ALIKE = 0.8
"""How alike two names are, without prefix, where one is taken for the other; a plug-in's own name is less so."""


def unknown_settings(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables that are set and that nobody is known to read → the one that may be meant, or an empty text.

    Examples:
        >>> unknown_settings({"OTEL_ML_EXPORTER": "mlflow", "OTEL_ML_DIR": "runs", "OTEL_ML_ACME_KEY": "x"})
        {'OTEL_ML_ACME_KEY': '', 'OTEL_ML_EXPORTER': 'OTEL_ML_EXPORTERS'}
    """
    known = {variable.name for variable in env.VARIABLES} | env.OF_THE_SERVICE | env.OF_THE_COLLECTOR
    unknown = sorted(name for name in environ if name.startswith("OTEL_ML_") and name not in known)
    return {name: _near(name) for name in unknown}


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
    near = difflib.get_close_matches(_end(name), by_end, n=1, cutoff=_ALIKE)
    return by_end[near[0]] if near else ""


def _end(name: str) -> str:
    prefix = next(prefix for prefix in _PREFIXES if name.startswith(prefix))
    return name.removeprefix(prefix)

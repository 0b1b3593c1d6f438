"""A worker that AReaL starts, with what it traces in the run: `python -m otel_ml.integrations.areal MODULE …`.

Role and number of the worker are those that AReaL gives it: `--role actor --worker-index 1` is rank 1 of `actor`.
"""

from __future__ import annotations

import itertools
import os
import runpy
import sys

from otel_ml import env
from otel_ml.integrations.areal import instrument_areal

_TOLD_BY = {"--role": env.SERVICE_NAME.name, "--worker-index": env.RANK.name}


def main(arguments: list[str]) -> None:
    """Run a module with its arguments as `python -m` does.

    Raises:
        SystemExit: no module is named.
    """
    if not arguments:
        raise SystemExit(
            "Expected a module of AReaL's and its arguments, got nothing. "
            "Run python -m otel_ml.integrations.areal areal.infra.rpc.rpc_server …"
        )
    # `--role actor` and `--role=actor`: each word with the one behind it.
    for word, after in itertools.pairwise([*arguments, ""]):
        option, equals, value = word.partition("=")
        if option in _TOLD_BY:
            os.environ[_TOLD_BY[option]] = value if equals else after
    # After the variables and before AReaL's module: what that traces as it is imported may be the first record, which
    # joins the run.
    instrument_areal()
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])

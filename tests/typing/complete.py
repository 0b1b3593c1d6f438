"""Whether every public name of `otel_ml` has a type that all checkers agree on: `python -m tests.typing.complete`.

`make check` runs it. What a package that is not installed, or has no types, leaves unknown is none of ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import otel_ml

FOREIGN = ("Type of metaclass unknown", "Type of base class unknown")
"""What pyright says of a class whose base is another package's."""

ERRORS_OF_IMPORTS = (
    "otel_ml.integrations.huggingface.callback.error",
    "otel_ml.integrations.huggingface.tracker.error",
)
"""`except ImportError as error` at the top of a module."""


def symbols() -> Iterable[Mapping[str, Any]]:
    """Yield what pyright knows of each symbol that a user can reach."""
    command = ["pyright", "--verifytypes", "otel_ml", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise SystemExit(done.stderr)
    yield from json.loads(done.stdout)["typeCompleteness"]["symbols"]


def is_ours(symbol: Mapping[str, Any]) -> bool:
    """Whether it is unknown, or guessed, by what we wrote."""
    is_known = symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]
    said = [one["message"] for one in symbol["diagnostics"]]
    is_foreign = symbol["name"] in ERRORS_OF_IMPORTS or any(one in FOREIGN for one in said)
    return not is_known and not is_foreign


def main() -> None:
    """Name each symbol whose type is missing.

    Raises:
        SystemExit: there is one, or pyright has not seen all public names.
    """
    found = list(symbols())
    missing = {f"otel_ml.{name}" for name in otel_ml.__all__} - {symbol["name"] for symbol in found}
    unknown = [
        f"{symbol['name']}: {one['message']}" for symbol in found if is_ours(symbol) for one in symbol["diagnostics"]
    ]
    if missing or unknown:
        sys.exit("\n".join([*(f"{name}: not seen" for name in sorted(missing)), *unknown]))


if __name__ == "__main__":
    main()

"""Every command that reads runs, over every run of a folder: `python -m tests.integration.every_command BASE`.

Prints a JSON list of [arguments, status, output]. Each command is a child of this process, which has imported all.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from otel_ml_service.cli import COMMANDS, main

LISTS = (
    ["runs"],
    ["runs", "--json"],
    ["recover", "--dry-run"],
    ["recover", "--timeout", "20"],
    ["doctor"],
    ["env"],
)
OF_A_RUN = (
    ["show"], ["show", "--csv"], ["why"], ["why", "--json"], ["diff", "latest"], ["top"], ["tail", "--no-follow"],
    ["report"], ["trace"], ["replay", "--to", "jsonl"],
)  # fmt: skip
LAST = (["gc", "--keep", "0", "--yes"], ["runs"])
HANGS_S = 60
CRASHED = 99


def commands(base: Path, runs: Sequence[Path]) -> Iterator[list[str]]:
    yield from LISTS
    for run in ("latest", *map(str, runs)):
        for number, command in enumerate(OF_A_RUN):
            into = {"report": ["--out", str(base / "report.html")], "replay": ["--experiment", f"copy-{number}"]}
            into["trace"] = ["--out", str(base / "t.pftrace")]
            yield [*command, run, *into.get(command[0], [])]
    yield from LAST


def said(arguments: list[str]) -> tuple[int, str]:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(writer, stream)
        signal.alarm(HANGS_S)
        status = CRASHED
        try:
            status = main(arguments)
        except BaseException:  # noqa: BLE001 (it is what the test looks for)
            traceback.print_exc()
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        text = output.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


if __name__ == "__main__":
    for name in COMMANDS:
        importlib.import_module(f"otel_ml_service.cli.{name.replace('-', '_')}_command")
    folder = Path(sys.argv[1])
    found = sorted(folder.glob("*/*")) + sorted(folder.glob("*"))
    print(json.dumps([[arguments, *said(arguments)] for arguments in commands(folder, found)]))

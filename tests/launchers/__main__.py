"""Start each launcher, print what came of it as a table, and with `--write` put it into docs/deployment.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.launchers.cases import CASES, Case
from tests.launchers.cluster import slurm
from tests.launchers.launched import Found, environment, launch, oracle

PAGE = Path("docs/deployment.md")
BEGIN, END = "<!-- launchers: written by `make launchers` -->\n", "<!-- /launchers -->\n"
HEAD = ("| launcher | runs | ranks of each | values, status, what is left |", "|---|---|---|---|")


def main(arguments: list[str]) -> int:
    """Return 0 where all is right."""
    parser = argparse.ArgumentParser(prog="python -m tests.launchers", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/deployment.md")
    write = parser.parse_args(arguments).write
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ending:
        cluster = ending.enter_context(slurm(Path(folder) / "slurm"))
        results = list(_results(Path(folder), {**environment(), "SLURM_CONF": cluster["SLURM_CONF"]}))
    table = [*HEAD, *(_line(case, said) for case, said in results)]
    if write:
        PAGE.write_text(_with_table(PAGE.read_text(), table))
    return int(any(said != _RIGHT for _, said in results))


_RIGHT = "right"


def _results(folder: Path, environ: Mapping[str, str]) -> Iterator[tuple[Case, str]]:
    for number, case in enumerate(CASES):
        said = _judged(case, folder / str(number), environ)
        print(_line(case, said), flush=True)
        yield case, said


def _judged(case: Case, folder: Path, environ: Mapping[str, str]) -> str:
    try:
        found = launch(case, folder, environ)
    except AssertionError as error:
        print(error, file=sys.stderr)
        return "**did not end as it should**"
    return _RIGHT if found == oracle(case) else f"**wrong**: {_shown(found)}"


def _shown(found: Iterable[Found]) -> str:
    return "; ".join(f"{'+'.join(run.statuses)} {dict(run.sums)}" for run in found) or "no run"


def _line(case: Case, said: str) -> str:
    return f"| {case.name} | {case.runs} | {case.ranks} | {said} |"


def _with_table(page: str, table: Iterable[str]) -> str:
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{os.linesep.join(table)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

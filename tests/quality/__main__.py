"""How good findings are: `python -m tests.quality [SEEDS] [--from SEED]` plays seeded jobs and prints a table.

`--traces FOLDER` prints that of published traces, `--series COUNT` that of change points. With `--write` the table is
written into docs/diagnostics/stragglers.md or docs/diagnostics/why.md, where it stands beside its command.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.quality import changes
from tests.quality.jobs import KINDS, job
from tests.quality.pages import CHANGES, JOBS, TRACES, write
from tests.quality.score import Score, score
from tests.quality.score import table as scores
from tests.quality.traces import traces

__all__ = ["by_kind"]


def by_kind(seeds: range) -> Mapping[str, Score]:
    """Return the score of each kind of job, over the jobs of these seeds, and of all together."""
    found: dict[str, Score] = defaultdict(Score)
    for seed in seeds:
        one = job(seed)
        found[one.kind] += score(one)
    found["all"] = sum(found.values(), Score())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.quality")
    parser.add_argument("seeds", type=int, nargs="?", default=40 * len(KINDS))
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="published traces instead: trace-<name>.parquet")
    parser.add_argument("--series", type=int, metavar="COUNT", help="change points instead: of so many series a kind")
    parser.add_argument("--write", action="store_true", help="write the table into the documentation, too")
    arguments = parser.parse_args()
    place, command, table = _asked(arguments)
    print(table)
    if arguments.write:
        write(place, command, table)


def _asked(arguments: argparse.Namespace) -> tuple[tuple[Path, str], str, str]:
    """Return where a table belongs, the command that makes it, and the table."""
    if arguments.traces is not None:
        return TRACES, "python -m tests.quality --traces FOLDER", "\n".join(traces(arguments.traces))
    if arguments.series is not None:
        return CHANGES, f"python -m tests.quality --series {arguments.series}", changes.table(arguments.series)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    beginning = f" --from {seeds.start}" if seeds.start else ""
    return JOBS, f"python -m tests.quality {len(seeds)}{beginning}", scores(by_kind(seeds).items())


if __name__ == "__main__":
    main()

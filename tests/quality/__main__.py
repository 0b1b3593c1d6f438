"""How good findings are: `python -m tests.quality [SEEDS] [--from SEED]` prints two tables, `--traces FOLDER` that of
published traces, see docs/diagnostics/stragglers.md and docs/diagnostics/why.md."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from tests.quality import changes
from tests.quality.jobs import job
from tests.quality.score import Score, score, table
from tests.quality.traces import traces

__all__ = ["by_kind"]


def by_kind(seeds: range) -> Mapping[str, Score]:
    """Return the score of each kind of job, over the jobs of these seeds, and of all together."""
    scores: dict[str, Score] = defaultdict(Score)
    for seed in seeds:
        one = job(seed)
        scores[one.kind] += score(one)
    scores["all"] = sum(scores.values(), Score())
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.quality")
    parser.add_argument("seeds", type=int, nargs="?", default=840)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="published traces instead: trace-<name>.parquet")
    arguments = parser.parse_args()
    if arguments.traces is not None:
        print("\n".join(traces(arguments.traces)))
        return
    print(table(by_kind(range(arguments.first, arguments.first + arguments.seeds)).items()))
    print()
    print(changes.table(arguments.seeds))


if __name__ == "__main__":
    main()

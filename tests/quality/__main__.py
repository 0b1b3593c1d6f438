"""How good findings are: `python -m tests.quality --traces FOLDER --write` measures all, and writes all tables.

Each table stands in docs/diagnostics beside the command that makes it alone, `python -m tests.quality jobs` say.
Without `--write` they are printed only.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.quality.pages import DOCS, write
from tests.quality.parts import PARTS, SEEDS, SERIES, Asked, Tell


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where all parts that were asked for were made."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all of them without one")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="COUNT", help=f"jobs; {SEEDS:,} by default")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="SEED", help="of the first job")
    parser.add_argument("--series", type=int, default=SERIES, metavar="COUNT", help="series of each kind of noise")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="published traces: trace-<name>.parquet")
    parser.add_argument("--write", action="store_true", help="write the tables into the documentation, too")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="FOLDER", help="of the pages that are written")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.parts if name not in PARTS]
    if unknown:
        parser.error(f"expected parts of {', '.join(PARTS)}, got {', '.join(map(repr, unknown))}")
    asked = Asked(range(given.first, given.first + given.seeds), given.series, given.traces)
    left_out = 0
    for name in given.parts or PARTS:
        try:
            with _progress(name) as tell:
                table = PARTS[name].table(asked, tell)
        except ValueError as problem:
            print(f"{name}: left out. {problem}", file=sys.stderr)
            left_out += 1
            continue
        command = PARTS[name].command(asked)
        print(f"{command}\n\n{table}\n")
        if given.write:
            page, place = PARTS[name].place
            write((given.docs / page, place), command, table)
    return 1 if left_out else 0


@contextmanager
def _progress(name: str) -> Iterator[Tell]:
    """Show how far a part is, in a line of a terminal that is gone afterwards."""
    began = time.monotonic()

    def tell(done: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{name}: {done}, {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

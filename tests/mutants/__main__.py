"""`make mutants`: make small mistakes in the product, one at a time, and say which of them no test notices.

::

    python -m tests.mutants                      a sample, 20 minutes on two cores
    python -m tests.mutants all                  every mutant: a night, or several
    python -m tests.mutants wire storage         a sample of these packages alone
    python -m tests.mutants step_streams.py --each 60   60 mutants of each file of this name

A mutant is tried in a copy of the tree with the tests that run its line, the quickest first, until one fails. Only
tests that run the line in their own process are asked, and those that are named like its file, so the figure is a
lower bound. Exits with 1 where a package
stays below its target. What no test can notice is listed in `survivors.toml`, with the reason.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.mutants.covering import Covering, asked
from tests.mutants.operators import Mutant, mutants_of
from tests.mutants.survivors import change_of, equivalent
from tests.mutants.tree import KEPT, ROOT, copied, group_of, sources
from tests.mutants.trial import HANGS, KILLED, UNTESTED, Outcome, Trials

__all__ = ["main"]

_TARGETS = dict.fromkeys(("aggregation", "delivery", "wire", "storage", "receiver"), 90)
_OTHERS = 80
_SAMPLE = 12
"""Mutants of a package; of those with a target of their own three times as many."""

TRIALS: Trials | None = None
"""Of this process, one of several."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mutant of a file, and the tests of its line."""

    file: str
    mutant: Mutant
    tests: tuple[str, ...]
    timeout: float


def main() -> int:
    """Try mutants, print what became of them, and return 1 where a target is missed."""
    chosen = _arguments()
    covering = asked(chosen.jobs)
    candidates = list(_candidates(chosen, covering))
    print(f"{len(candidates)} mutants", flush=True)
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    context = multiprocessing.get_context("fork")
    numbers = context.SimpleQueue()
    for number in range(chosen.jobs):
        numbers.put(number)
    with ProcessPoolExecutor(chosen.jobs, context, initializer=_begin, initargs=(numbers,)) as pool:
        for failed in filter(None, pool.map(_fails_unchanged, _one_of_each_group(candidates))):
            sys.exit(f"{failed}: without a mutant; see {KEPT}/copies/*/log")
        for candidate, outcome in zip(candidates, pool.map(_tried, candidates), strict=True):
            hung = [HANGS] if outcome.by == HANGS else []
            outcomes[group_of(candidate.file)].update([outcome.verdict, *hung])
            if outcome.verdict != KILLED:
                _print_survivor(candidate, outcome)
            elif chosen.verbose:
                print(f"killed {candidate.file}:{candidate.mutant.line} in {outcome.seconds:.1f} s by {outcome.by}")
    return _print_summary(outcomes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("packages", nargs="*", help="packages or names of files; `all` for every mutant")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample")
    parser.add_argument("--each", type=int, help="mutants of each package, or of each file that is named")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="that the tests of one mutant take; more are left out"
    )
    parser.add_argument("--verbose", action="store_true", help="print the killed, too, and by which test")
    return parser.parse_args()


def _candidates(chosen: argparse.Namespace, covering: Covering) -> Iterator[Candidate]:
    """Yield the mutants to try, but those that no test can notice, from the first file to the last."""
    known = equivalent()
    by_group: dict[str, list[tuple[str, Mutant]]] = defaultdict(list)
    for file in sources():
        names = {group_of(file), Path(file).name} & set(chosen.packages)
        if not names and chosen.packages not in ([], ["all"]):
            continue
        source = (ROOT / file).read_bytes()
        for mutant in mutants_of(source):
            if change_of(file, source, mutant.applied(source)) not in known:
                by_group[next(iter(names), group_of(file))].append((file, mutant))
    for group, mutants in by_group.items():
        count = chosen.each or (_SAMPLE * 3 if group in _TARGETS else _SAMPLE)
        every = chosen.packages == ["all"] or count >= len(mutants)
        picked = mutants if every else Random(f"{chosen.seed} {group}").sample(mutants, count)
        for file, mutant in sorted(picked, key=lambda each: (each[0], each[1].start)):
            tests = _affordable(covering.of(file, mutant.lines), covering, chosen.seconds)
            yield Candidate(file, mutant, tests, 20.0 + 5.0 * sum(map(covering.seconds.__getitem__, tests)))


def _affordable(tests: Sequence[str], covering: Covering, seconds: float) -> tuple[str, ...]:
    chosen: list[str] = []
    left = seconds
    for test in tests:
        left -= covering.seconds[test]
        if left < 0:
            break
        chosen.append(test)
    return tuple(chosen)


def _begin(numbers: multiprocessing.SimpleQueue[int]) -> None:
    global TRIALS
    TRIALS = Trials(copied(str(numbers.get())))


def _one_of_each_group(candidates: Sequence[Candidate]) -> list[Candidate]:
    return list({group_of(candidate.file): candidate for candidate in candidates if candidate.tests}.values())


def _fails_unchanged(candidate: Candidate) -> str:
    """Return what fails where nothing is mutated: then everything would look killed."""
    assert TRIALS is not None
    source = (ROOT / candidate.file).read_bytes()
    return TRIALS.of(candidate.file, source, candidate.tests[:5], candidate.timeout).by


def _tried(candidate: Candidate) -> Outcome:
    assert TRIALS is not None
    if not candidate.tests:
        return Outcome(UNTESTED)
    mutated = candidate.mutant.applied((ROOT / candidate.file).read_bytes())
    return TRIALS.of(candidate.file, mutated, candidate.tests, candidate.timeout)


def _print_survivor(candidate: Candidate, outcome: Outcome) -> None:
    source = (ROOT / candidate.file).read_bytes()
    _, was, becomes = change_of(candidate.file, source, candidate.mutant.applied(source))
    how = "no test runs it" if outcome.verdict == UNTESTED else f"{len(candidate.tests)} tests, {outcome.seconds:.0f} s"
    print(f"\n{candidate.file}:{candidate.mutant.line}: {candidate.mutant.kind}; {how}")
    for sign, text in (("-", was), ("+", becomes)):
        print("\n".join(f"  {sign} {line}" for line in text.splitlines()), flush=True)


def _print_summary(outcomes: dict[str, Counter[str]]) -> int:
    print(f"\n{'package':<16} {'tried':>6} {'killed':>7} {'target':>7}")
    missed = 0
    for group, counted in sorted(outcomes.items()):
        tried, target = counted.total() - counted[HANGS], _TARGETS.get(group, _OTHERS)
        share = 100 * counted[KILLED] / tried
        missed += share < target
        hung = f"  {counted[HANGS]} of the killed hang, or the machine is busy" if counted[HANGS] else ""
        print(f"{group:<16} {tried:>6} {share:>5.0f} % {target:>5} %{'  missed' if share < target else ''}{hung}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

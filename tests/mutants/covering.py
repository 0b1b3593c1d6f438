"""Which tests run a line: asked of coverage, kept in `build/mutants/lines`, and asked again where a file changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.tree import KEPT, PACKAGES, ROOT

__all__ = ["Covering", "asked"]

_TESTS = ROOT / "tests"
_DOCTESTS = (ROOT / "otel_ml", ROOT / "exporters", ROOT / "service")
_MARKS = "not e2e and not chaos and not browser and not launchers and not full and not gpu"


@dataclass(slots=True)
class Covering:
    """The tests of each line, and what each test takes.

    Attributes:
        tests: by file and line.
        seconds: by test, with coverage measured: about twice what it takes without.
    """

    tests: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    seconds: dict[str, float] = field(default_factory=dict)

    def of(self, file: str, lines: Iterable[int]) -> list[str]:
        """Return the tests that run any of some lines: those that are named like the file first, then the quickest.

        What an import runs is in every test of the file. What a test runs in another process coverage does not see,
        as of commands: so a file's own tests, `test_<its name>.py`, are asked whatever they run.
        """
        known = self.tests[file]
        found = set().union(*(known[line] for line in lines if line in known))
        if "" in found:
            found = set().union(*known.values())
        name = Path(file).stem
        found |= {test for test in self.seconds if Path(test.partition("::")[0]).stem == f"test_{name}"}
        return sorted(
            found & self.seconds.keys(),
            key=lambda test: (name not in test.partition("::")[0], self.seconds[test], test),
        )


def asked(jobs: int) -> Covering:
    """Run the tests that changed since they were asked, and return what they all run."""
    with ThreadPoolExecutor(jobs) as pool:
        kept = list(pool.map(_asked_of, _pieces()))
    covering = Covering()
    for piece in kept:
        _add(covering, piece)
    return covering


def _pieces() -> Iterable[Path]:
    """Return what is run, and kept, together: a folder of units, or a file; the slowest first."""
    yield from sorted((_TESTS / "property").glob("test_*.py"))
    yield from sorted(path for path in (_TESTS / "integration").glob("test_*.py") if _is_one_process(path))
    for package in sorted(path for path in (_TESTS / "unit").iterdir() if path.is_dir()):
        yield from sorted(path for path in package.iterdir() if _has_tests(path))
    yield from (_TESTS / "contract", _TESTS / "security", _TESTS / "upgrade" / "test_upgrades.py", *_DOCTESTS)


def _is_one_process(path: Path) -> bool:
    """Whether the tests of a file have a service in their own process: what runs in another is not seen."""
    return "Bench" in path.read_text()


def _has_tests(path: Path) -> bool:
    return next(path.glob("**/test_*.py"), None) is not None if path.is_dir() else path.match("test_*.py")


def _asked_of(piece: Path) -> Path:
    """Return the folder of a piece's two files; run its tests where they are older than what they are about."""
    folder = KEPT / "lines" / ".".join(piece.relative_to(ROOT).parts)
    report, data = folder / "report.json", folder / "coverage"
    if report.exists() and report.stat().st_mtime > _newest(piece):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    environ = {**os.environ, "COVERAGE_FILE": str(data), "MUTANTS_REPORT": str(report), "CI": "1"}
    command = [sys.executable, "-m", "pytest", str(piece), "-q", "-n", "0", "-p", "no:randomly", "-m", _MARKS]
    command += ["-p", "tests.mutants.session", "--cov-context=test", "--cov-report=", "-o", "timeout=600"]
    command += [f"--cov={package}" for package in PACKAGES]
    print(f"asking {piece.relative_to(ROOT)} which lines it runs", flush=True)
    with (folder / "log").open("wb") as log:
        subprocess.run(command, cwd=ROOT, env=environ, stdout=log, stderr=log, check=False)
    return folder


def _newest(piece: Path) -> float:
    """Return when the tests of a piece, or anything that all tests use, was changed last."""
    files = [*piece.rglob("*.py")] if piece.is_dir() else [piece]
    files += [*_TESTS.glob("*.py"), *(file for root in PACKAGES.values() for file in root.rglob("*.py"))]
    return max(file.stat().st_mtime for file in files)


def _add(covering: Covering, folder: Path) -> None:
    report = json.loads((folder / "report.json").read_text())
    failed = set(report["failed"])
    for test in sorted(failed):
        print(f"fails without a mutant, and is left out: {test}")
    covering.seconds.update({test: took for test, took in report["seconds"].items() if test not in failed})
    if not (folder / "coverage").exists():  # no test of it is chosen by its marks
        return
    import coverage  # what only `make mutants` installs: these tests run without

    data = coverage.CoverageData(str(folder / "coverage"))
    data.read()
    for file in data.measured_files():
        lines = covering.tests[str(Path(file).relative_to(ROOT))]
        for line, contexts in data.contexts_by_lineno(file).items():
            lines[line].update(_named(contexts))


def _named(contexts: Iterable[str]) -> set[str]:
    """Return tests without parameters and phase; "" is not a test: what an import runs."""
    return {context.partition("|")[0].partition("[")[0] for context in contexts}

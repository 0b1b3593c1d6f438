"""Runs the originals' own tests against our layer: `python -m tests.originals.run FOLDER [NAME…]`.

Nothing of an original is in this repository. FOLDER is yours, and has a checkout of each original, or its bare
repository, under the name that `suites.py` gives it. The tests of its newest commit are copied, our names are put into
the place of the original's, and pytest runs them. What came out is in `figures.json`, from which the page is made.

Where a test asks what only the original's internals answer, such as what a mocked writer was given, a person has to
translate it. `FOLDER/<suite>.translated` has what belongs beside the copied tests, such as stubs of packages that no
index has; where it has files `test_*.py`, these run in the place of the original's. The figures name them, and the
tests of the original that they do not have.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from shutil import copyfile, copytree
from xml.etree import ElementTree

from tests.originals.figures import FIGURES, Figures, kept, written
from tests.originals.suites import SUITES, Suite

__all__ = ["main", "run"]

_HERE = Path(__file__).resolve().parent
_PLUGIN = "surroundings_of_an_original"
_LONG = 1800


class NothingToRunError(Exception):
    """There is nothing to run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites that are named, or all whose original is in the folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.originals.run", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="with a checkout, or a bare repository, of each original")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(suite.name for suite in SUITES)}")
    parser.add_argument("--into", type=Path, default=FIGURES, help="where the figures are kept")
    asked = parser.parse_args(arguments)
    figures = dict(kept(asked.into))
    for suite in _chosen(parser, asked.names):
        try:
            figures[suite.name] = run(suite, asked.folder)
        except NothingToRunError as missing:
            print(f"{suite.name}: {missing}")
            continue
        written(asked.into, figures)
        print(f"{suite.name}: {_said(figures[suite.name])}")
    return 0


def _chosen(parser: argparse.ArgumentParser, names: Sequence[str]) -> Iterator[Suite]:
    known = {suite.name: suite for suite in SUITES}
    for name in names or known:
        if name not in known:
            parser.error(f"no suite is called {name!r}; expected one of {', '.join(known)}")
        yield known[name]


def _said(figures: Figures) -> str:
    failed = "".join(f"\n  {test}: {why}" for test, why in figures.failed.items())
    return f"{figures.passed} of {figures.run} at {figures.commit[:7]}{failed}"


def run(suite: Suite, folder: Path) -> Figures:
    """Run a suite and return what came out."""
    with tempfile.TemporaryDirectory(prefix="otel-ml-originals-") as made:
        tree = Path(made) / "tree"
        commit = _unpack(suite, folder, tree)
        theirs = _named(tree, suite.within)
        translated = _put_beside(folder / f"{suite.name}.translated", tree)
        for old, new in suite.names.items():
            _replace(tree, old, new)
        outcomes = _tested(suite, tree, translated or suite.tests)
    counted = {test: why for test, why in outcomes.items() if why is not None and not suite.is_apart(test)}
    return Figures(
        commit=commit,
        passed=sum(not why for why in counted.values()),
        run=len(counted),
        failed={test: why for test, why in sorted(counted.items()) if why},
        translated=translated,
        left_out=sorted(theirs - {_function(test) for test in outcomes}) if translated else [],
    )


def _named(tree: Path, within: str) -> set[str]:
    """Return the names of all tests of the original, or of those in a class."""
    nodes = (node for path in tree.rglob("test_*.py") for node in ast.walk(ast.parse(path.read_bytes())))
    if within:
        nodes = (
            inner for node in nodes if isinstance(node, ast.ClassDef) and node.name == within for inner in node.body
        )
    functions = (node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))
    return {name for name in functions if name.startswith("test")}


def _function(test: str) -> str:
    return test.partition("::")[2].partition("[")[0]


def _unpack(suite: Suite, folder: Path, tree: Path) -> str:
    """Write what the suite needs of the newest commit of a checkout; return that commit."""
    tree.mkdir()
    checkout, said = folder / suite.checkout, folder / f"{suite.name}.translated" / "COMMIT"
    if not checkout.exists():
        if said.exists():
            return said.read_text(encoding="utf-8").strip()
        raise NothingToRunError(
            f"{checkout} is not there. Expected a checkout of {suite.source}, or its bare repository."
        )
    git = ["git", "-C", str(checkout)]
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    packed = subprocess.run([*git, "archive", commit, "--", *suite.files], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree, filter="data")
    return commit


def _replace(tree: Path, old: str, new: str) -> None:
    for path in tree.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if old in text:
            path.write_text(text.replace(old, new), encoding="utf-8")


def _put_beside(translated: Path, tree: Path) -> tuple[str, ...]:
    """Copy what a person has made for this suite; return the tests among it."""
    if not translated.is_dir():
        return ()
    copytree(translated, tree, dirs_exist_ok=True)
    return tuple(sorted(str(path.relative_to(translated)) for path in translated.rglob("test_*.py")))


def _tested(suite: Suite, tree: Path, tests: Sequence[str]) -> Mapping[str, str | None]:
    """Return test → why it failed: nothing where it passed, None where it was skipped."""
    answer = tree.parent / "answer.xml"
    copyfile(_HERE / "surroundings.py", tree / f"{_PLUGIN}.py")  # their `tests` may hide ours
    (tree / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # not that of the original, nor ours
    path = os.pathsep.join((str(tree), *filter(None, [os.environ.get("PYTHONPATH", "")])))
    command = [sys.executable, "-m", "pytest", "-q", "-p", _PLUGIN, "-p", "no:cacheprovider", "-p", "no:randomly"]
    options = [
        "-o",
        "junit_family=xunit1",
        f"--junitxml={answer}",
        "--continue-on-collection-errors",
        "-k",
        suite.within,
    ]
    said = subprocess.run(
        [*command, *options, *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path},
        timeout=_LONG,
        check=False,
        capture_output=True,
        text=True,
    )
    if not answer.exists():
        raise NothingToRunError(f"pytest said nothing of its tests: {(said.stderr or said.stdout).strip()[-400:]}")
    return dict(_outcome(case, (tree, _HERE.parents[1])) for case in ElementTree.parse(answer).iter("testcase"))


def _outcome(case: ElementTree.Element, folders: Iterable[Path]) -> tuple[str, str | None]:
    """Return a test, and why it failed: the same on every machine, so without the folders it ran in."""
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    wrong = case.find("failure")
    wrong = case.find("error") if wrong is None else wrong
    if wrong is not None:
        why = (wrong.get("message") or "").strip().partition("\n")[0]
        for folder in folders:
            why = why.replace(f"{folder}{os.sep}", "")
        return name, why[:160] or "failed"
    return name, None if case.find("skipped") is not None else ""


if __name__ == "__main__":
    sys.exit(main())

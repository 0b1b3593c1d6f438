"""What holds for the life of every exporter, also of one that keeps nothing."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_ml_exporters.errors import ExporterClosedError
from otel_ml_exporters.exporter import Exporter
from otel_ml_exporters.records import RunStatus
from otel_ml_exporters.registry import BUILT_IN
from tests.contract.cases import CASES, UNREADABLE, Case
from tests.contract.stored import RUN_ID, environment
from tests.contract.stream import AT, every_kind, run_info

TIMEOUT = 30.0

pytestmark = pytest.mark.parametrize("case", [*CASES, *UNREADABLE], ids=lambda case: case.id)


def started(case: Case, run_dir: Path) -> Exporter:
    exporter = case.exporter()
    exporter.start(run_info(run_dir, RUN_ID))
    return exporter


def test_records_are_not_modified(case: Case, run_dir: Path) -> None:
    records = every_kind(run_dir)
    before = copy.deepcopy(records)

    exporter = started(case, run_dir)
    exporter.export(records)
    exporter.shutdown(TIMEOUT, None)

    assert repr(records) == repr(before)


def test_shutdown_is_safe_before_start_and_again(case: Case, run_dir: Path) -> None:
    case.exporter().shutdown(TIMEOUT, None)
    exporter = started(case, run_dir)

    exporter.shutdown(TIMEOUT, RunStatus(1, AT, "finished"))
    exporter.shutdown(TIMEOUT, None)


def test_an_export_after_shutdown_is_an_error(case: Case, run_dir: Path) -> None:
    exporter = started(case, run_dir)
    exporter.shutdown(TIMEOUT, None)

    with pytest.raises(ExporterClosedError, match=r"shut down"):
        exporter.export(every_kind(run_dir))


WITHOUT_PACKAGES = """
import sys
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in set(sys.argv[4].split(",")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from otel_ml.exceptions import MissingDependencyError
from tests.contract.cases import case
from tests.contract.stream import run_info, step
try:
    exporter = case(sys.argv[1]).exporter()
    exporter.start(run_info(Path(sys.argv[2]), sys.argv[3]))
    exporter.export([step(1, 1, {"loss": 0.5})])
    exporter.shutdown(30.0, None)
    print("exported")
except MissingDependencyError as error:
    print(error)
"""


def without(packages: str, case: Case, run_dir: Path) -> str:
    """Return what an exporter says in a process that has none of `packages`."""
    command = [sys.executable, "-c", WITHOUT_PACKAGES, case.id, str(run_dir), RUN_ID, packages]
    done = subprocess.run(command, env=environment(), cwd=run_dir, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


NEEDED = [backend.package for backend in BUILT_IN.values() if backend.package is not None]
OPTIONAL = ",".join(["crc32c", "PIL", "tensorboard", "tensorflow", "torch", *NEEDED])


def test_without_its_package_an_exporter_says_what_to_install_and_needs_no_other(case: Case, run_dir: Path) -> None:
    said = without(OPTIONAL, case, run_dir)

    assert said.splitlines()[-1] == said_without_package(case)


def said_without_package(case: Case) -> str:
    if case.package is None:
        return "exported"
    install = f"pip install 'otel-ml[{case.id}]'"
    sentence = f"Exporter {case.id!r} needs the package {case.package!r}. Install it with: {install}"
    return f"{sentence} (otel-ml explain missing-package)"


def test_options_are_checked_when_an_exporter_is_made(case: Case, run_dir: Path) -> None:
    maker: Callable[..., Exporter] = type(case.exporter())

    with pytest.raises(ValueError, match=r"every: expected .* got 0"):
        maker(every=0)

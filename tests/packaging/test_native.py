"""The compiled part is there where there is a compiler; without it otel_ml does the same in Python, and says why."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from otel_ml._internal.native import native
from tests.e2e.jobs import ROOT, environment, the_run_in

pytestmark = pytest.mark.timeout(300)  # it builds wheels, and runs the tests of recording once more

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
NO_COMPILER = {"CC": "/nonexistent"}

RECORD = """
import otel_ml
with otel_ml.init("native", exporters="jsonl") as run:
    metric = otel_ml.get_meter().metric("direct")
    for step in otel_ml.steps(range(3)):
        otel_ml.log({"a": 1.0, "b": 2, "c": 3.5, "d": step}, reduce="sum")
        otel_ml.log({"e": 1.0, "f": 2, "g": 3.5, "h": step})
        metric.record(0.5)
"""
READ = """
import glob, json, otel_ml
from otel_ml._internal.native import native
[run] = glob.glob("otel-ml-runs/native/*")
read = otel_ml.read(run)
print(json.dumps([native is not None, {name: read[name] for name in ("d", "h", "direct")}]))
"""
SIGNATURES = """
import inspect, json, otel_ml
from otel_ml._internal.record.meter import Metric
from otel_ml.diagnostics.measure import Measures
def of(call):
    return [(name, repr(parameter.default)) for name, parameter in inspect.signature(call).parameters.items()]
calls = [otel_ml.log, Metric.record, otel_ml.timed, otel_ml.set_step, Measures.record]
print(json.dumps([
    [of(call) for call in calls], [inspect.getdoc(call) for call in calls], [call.__qualname__ for call in calls],
    otel_ml.log.__module__, otel_ml.timed.__module__, otel_ml.set_step.__module__,
]))
"""


def python(arguments: list[str], cwd: Path, variables: Mapping[str, str], code: int = 0) -> tuple[str, str]:
    """Run a Python that finds only what `variables` adds to its path; return what it wrote."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "CC", "CFLAGS"}}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def build(target: str, source: Path, folder: Path, **variables: str) -> tuple[Path, str]:
    """Return what hatchling builds of `source`, and what it says."""
    printed, said = python(["-m", "hatchling", "build", "-t", target, "-d", str(folder)], source, variables)
    [built] = folder.iterdir()
    return built, (printed + said).replace(str(built), "").strip()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))[0]


@pytest.fixture(scope="module")
def unpack(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Return what unpacks the source distribution once more."""

    def unpacked() -> Path:
        folder = tmp_path_factory.mktemp("source")
        with tarfile.open(archive) as packed:
            packed.extractall(folder)
        [source] = folder.iterdir()
        return source

    return unpacked


@pytest.fixture
def source(unpack: Callable[[], Path]) -> Path:
    return unpack()


@pytest.fixture(scope="module")
def compiled(unpack: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    wheel, said = build("wheel", unpack(), tmp_path_factory.mktemp("compiled"))
    assert said == ""
    return wheel


@pytest.fixture(scope="module")
def pure(unpack: Callable[[], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", unpack(), tmp_path_factory.mktemp("pure"), **NO_COMPILER)[0]


@pytest.fixture(scope="module")
def installed(compiled: Path, pure: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Return the folders of two installations: with the compiled part and without. Dependencies are those of here."""
    folders = {True: tmp_path_factory.mktemp("with"), False: tmp_path_factory.mktemp("without")}
    for wheel, folder in ((compiled, folders[True]), (pure, folders[False])):
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--no-index"]
        python([*install, "--target", str(folder), str(wheel)], folder, {})
    return folders


def packed(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def modules(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith((".so", ".o", ".c", ".h"))}


def test_this_checkout_is_compiled() -> None:
    """Else everything here would test the Python twice, and the C never."""
    assert native is not None, "python hatch_build.py says why it is not"


def test_the_source_distribution_has_what_compiles_and_nothing_compiled(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}

    assert {f"native/{path.name}" for path in (ROOT / "native").iterdir()} | {"hatch_build.py"} <= names
    assert [name for name in names if name.endswith(".so")] == []


def test_with_a_compiler_the_wheel_is_of_this_interpreter_and_has_the_module(compiled: Path) -> None:
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")

    assert compiled.name == f"otel_ml-0.1.0-{version}-{version}-{platform}.whl"
    assert modules(packed(compiled)) == {f"otel_ml/_native{SUFFIX}"}


def no_compiler(source: Path) -> dict[str, str]:
    return NO_COMPILER


def no_headers(source: Path) -> dict[str, str]:
    header = source / "native" / "native.h"
    header.write_text(header.read_text().replace("<Python.h>", "<NoPython.h>"))
    return {}


def no_sources(source: Path) -> dict[str, str]:
    shutil.rmtree(source / "native")
    return {}


def nothing_to_compile_with(source: Path) -> dict[str, str]:
    (source / "setuptools.py").write_text("raise ModuleNotFoundError(\"No module named 'setuptools'\")")
    return {"PYTHONPATH": str(source)}


def what_ends_the_program(source: Path) -> dict[str, str]:
    (source / "setuptools.py").write_text("raise SystemExit('error: no such platform')")
    return {"PYTHONPATH": str(source)}


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (no_compiler, "/nonexistent"),
        (no_headers, "exit "),
        (no_sources, "no C sources"),
        (nothing_to_compile_with, "No module named 'setuptools'"),
        (what_ends_the_program, "no such platform"),
    ],
)
def test_what_cannot_compile_gives_a_wheel_of_python_and_says_why_and_what_that_costs(
    source: Path, tmp_path: Path, broken: Callable[[Path], dict[str, str]], why: str
) -> None:
    (source / ".gitignore").unlink()  # not everyone who copies a tree copies it
    (source / "otel_ml" / f"_native{SUFFIX}").write_bytes(b"of another build")

    wheel, said = build("wheel", source, tmp_path, **broken(source))

    assert wheel.name == "otel_ml-0.1.0-py3-none-any.whl"
    assert modules(packed(wheel)) == set()
    [warning] = [line for line in said.splitlines() if line.startswith("otel_ml has no compiled part: ")]
    assert why in warning
    assert "recording takes longer" in warning


def test_a_wheel_of_python_can_be_asked_for(source: Path, tmp_path: Path) -> None:
    wheel, said = build("wheel", source, tmp_path, HATCH_BUILD_NO_HOOKS="true")

    assert (wheel.name, said) == ("otel_ml-0.1.0-py3-none-any.whl", "")


def test_an_interpreter_without_its_gil_gets_no_compiled_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sysconfig.get_config_vars(), "Py_GIL_DISABLED", 1)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    hatch_build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hatch_build)

    with pytest.raises(RuntimeError, match="GIL"):
        hatch_build.compile_in(tmp_path)


def test_a_checkout_has_the_module_of_its_sources_or_none(source: Path) -> None:
    module = source / "otel_ml" / f"_native{SUFFIX}"

    assert python(["hatch_build.py"], source, {}) == (f"{module}\n", "")
    assert module.exists()

    _, said = python(["hatch_build.py"], source, NO_COMPILER, code=1)
    assert "otel_ml has no compiled part" in said
    assert not module.exists()
    assert list((source / "build").iterdir()) == []


@pytest.mark.parametrize("with_module", [True, False])
def test_what_is_recorded_is_read_back_with_and_without(
    installed: dict[bool, Path], tmp_path: Path, with_module: bool
) -> None:
    variables = {"PYTHONPATH": str(installed[with_module]), "OTEL_ML_DIR": str(tmp_path / "otel-ml-runs")}

    python(["-c", RECORD], tmp_path, variables)
    the_run_in(tmp_path / "otel-ml-runs")  # once everything is written
    has_module, read = json.loads(python(["-c", READ], tmp_path, variables)[0])

    assert has_module == with_module
    steps = [0, 1, 2]
    assert read == {"d": [steps, [0.0, 1.0, 2.0]], "h": [steps, [0.0, 1.0, 2.0]], "direct": [steps, [0.5] * 3]}


def test_signatures_and_help_are_the_same_with_and_without(installed: dict[bool, Path], tmp_path: Path) -> None:
    """But for the annotations, which C has no place for."""
    compiled, in_python = (
        json.loads(python(["-c", SIGNATURES], tmp_path, {"PYTHONPATH": str(installed[with_module])})[0])
        for with_module in (True, False)
    )

    assert compiled == in_python


@pytest.mark.parametrize("with_module", [True, False])
def test_the_doctor_says_whether_the_compiled_part_is_there(
    installed: dict[bool, Path], tmp_path: Path, with_module: bool
) -> None:
    program = "from otel_ml_service.cli.checks import package_checks; print(*package_checks(), sep='\\n')"

    found = python(["-c", program], tmp_path, {"PYTHONPATH": str(installed[with_module])})[0]

    assert ("otel_ml's compiled part is there" in found) == with_module
    assert ("otel_ml has no compiled part" in found) != with_module


def test_a_second_interpreter_of_a_process_has_the_python(tmp_path: Path) -> None:
    """Compiled code keeps objects of the interpreter that imported it; those of another would end the process."""
    program = """
import sys
try:
    import _interpreters as interpreters
except ImportError:  # before Python 3.13
    import _xxsubinterpreters as interpreters
from otel_ml._internal.native import native
print(native is not None, flush=True)
interpreters.run_string(interpreters.create(), f'''
import sys
sys.path[:] = {sys.path!r}
from otel_ml._internal.native import native
print(native is not None, flush=True)
''')
"""
    printed, _ = python(["-c", program], tmp_path, {"PYTHONPATH": str(ROOT)})

    assert printed.split() == ["True", "False"]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_tests_of_recording_pass_without_the_compiled_part() -> None:
    program = """
import sys
sys.modules["otel_ml._native"] = None
import pytest
sys.exit(pytest.main(["--quiet", "tests/unit/otel_ml/record"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout

"""What every test starts from: no variable of the machine, a folder of its own, the same seeds in CI."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.forked import Forked
from tests.surroundings import forget, is_the_shells, reach_loopback

# Before anything is collected: fixtures of a module or a session start jobs too.
forget()
reach_loopback()
os.environ |= {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}

# Loaded machines are slow, not wrong: the deadline of one example would measure the neighbors.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Triton's interpreter runs kernels on tensors in memory; where they are to be compiled, the variable is 0. Triton asks
# when it is imported.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Inductor compiles a handful of functions: processes that do it beside the tests would each import torch first, and to
# try which instructions the machine has takes longer than all of them.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell without job control starts what it puts in the background so, and our processes would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, go on with what starts processes: they decide when all is done."""
    items.sort(key=lambda item: (item.get_closest_marker("long") is None, is_quick(item)))


def is_quick(item: pytest.Item) -> bool:
    """Whether it is a doctest, or a test of a unit."""
    return not item.path.is_relative_to(TESTS) or item.path.is_relative_to(TESTS / "unit")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt what is collected from the garbage collector: 800,000 objects, 0.7 s each time, and all of them stay.

    Then it looks for cycles seldom, as in the service: to do so after each 700 objects took a twentieth of all time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 20, 100)
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def what_it_imports_stays() -> Iterator[None]:
    """Exempt what a file has imported just so, where it is much: Transformers alone are 2,000 modules."""
    before = len(sys.modules)
    yield
    if len(sys.modules) > before + 200:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_to_the_next_file() -> Iterator[None]:
    """Name the file that leaves our modules in another's place, not those that find them: workers take any order."""
    before = ours_in_the_place_of_others()
    yield
    assert ours_in_the_place_of_others() == before


def ours_in_the_place_of_others() -> dict[str, str]:
    """Return which of our modules are imported under another name than their own."""
    names = {name: str(getattr(module, "__name__", "")) for name, module in sys.modules.items()}
    return {name: own for name, own in names.items() if own.startswith("otel_ml") and not name.startswith("otel_ml")}


@pytest.fixture(scope="session", autouse=True)
def runs_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep what fixtures of a module or a session record in a folder of the tests."""
    os.environ["OTEL_ML_DIR"] = str(tmp_path_factory.mktemp("otel-ml-runs"))


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove what a test before has left, and give each a folder for its runs."""
    for name in filter(is_the_shells, [*os.environ]):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_ML_DIR", str(tmp_path / "otel-ml-runs"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


@pytest.fixture(autouse=True)
def no_run_is_left(clean_environ: None) -> Iterator[None]:
    """Name the test that leaves a run active, not those after it that find one."""
    del clean_environ
    yield
    runtime = sys.modules.get("otel_ml._internal.lifecycle.runtime")
    if runtime is not None and runtime.RUNTIME.is_active:
        runtime.RUNTIME.shutdown(5.0)
        pytest.fail("it left a run active in this process")


@pytest.fixture(scope="session")
def mlflow_database() -> Path:
    """Return a database of MLflow with no run, to be copied; it takes MLflow 10 s, once for each of its versions."""
    folder = TESTS.parent / "build"
    folder.mkdir(exist_ok=True)
    database = folder / f"mlflow-{version('mlflow')}.db"
    with database.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not database.exists():
            unfinished = database.with_suffix(".new")
            maker = Forked("mlflow", "tests.mlflow_database", [str(unfinished)], env=os.environ, cwd=folder)
            maker.communicate()
            assert maker.wait() == 0
            unfinished.replace(database)
    return database

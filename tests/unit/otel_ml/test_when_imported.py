"""Who binds to another package hears of its import, whoever finds that package, and however often it is looked for."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from otel_ml._internal.when_imported import forget_import, when_imported

NAME = "a_package_that_is_watched"


class EditableFinder:
    """Finds one package where it is edited, as the finder that `pip install --editable` leaves does."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self._file) if name == NAME else None


class AskingFinder:
    """Finds a package as all others do, as those do that measure or change what is imported."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        others: list[Any] = [finder for finder in sys.meta_path if finder is not self] if name == NAME else []
        found = (finder.find_spec(name, path, target) for finder in others)
        return next((spec for spec in found if spec is not None), None)


@contextmanager
def asked_at(place: int, finder: EditableFinder | AskingFinder) -> Iterator[None]:
    sys.meta_path.insert(place, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@pytest.fixture
def heard() -> Iterator[list[str]]:
    heard: list[str] = []
    when_imported(NAME, lambda: heard.append(NAME))
    yield heard
    forget_import(NAME)
    sys.modules.pop(NAME, None)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / f"{NAME}.py"
    file.write_text("value = 1\n")
    return file


def test_of_a_package_that_is_edited_where_it_is(heard: list[str], source: Path) -> None:
    with asked_at(len(sys.meta_path), EditableFinder(source)):
        module = importlib.import_module(NAME)

    assert heard == [NAME]
    assert (module.value, module.__spec__.loader) == (1, module.__loader__)  # type: ignore[union-attr]
    assert type(module.__loader__).__name__ == "SourceFileLoader"


@pytest.mark.parametrize("place", [0, 1])
def test_beside_another_one_that_asks_all_others(
    heard: list[str], source: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.syspath_prepend(source.parent)
    assert sys.meta_path[0].module == NAME  # type: ignore[attr-defined] # the one that tells
    with asked_at(place, AskingFinder()):
        importlib.import_module(NAME)

    assert heard == [NAME]


def test_after_the_program_has_looked_whether_there_is_one(
    heard: list[str], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(source.parent)
    found = importlib.util.find_spec(NAME)

    assert found is not None
    assert found.loader is not None
    assert found.loader.get_filename(NAME) == str(source)  # type: ignore[attr-defined]
    assert heard == []
    importlib.import_module(NAME)
    assert heard == [NAME]


def test_after_an_import_that_failed(heard: list[str], source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(NAME)
    monkeypatch.syspath_prepend(source.parent)
    source.write_text("raise ImportError('another package is missing')\n")
    with pytest.raises(ImportError, match="another package"):
        importlib.import_module(NAME)
    assert heard == []

    source.write_text("value = 1  # as long as it was before is not\n")
    importlib.invalidate_caches()
    importlib.import_module(NAME)

    assert heard == [NAME]


def test_once_and_not_after_nobody_wants_to_hear_of_it(
    heard: list[str], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(source.parent)
    early = importlib.util.find_spec(NAME)
    importlib.import_module(NAME)
    assert early is not None
    assert early.loader is not None
    early.loader.exec_module(importlib.util.module_from_spec(early))
    assert heard == [NAME]

    del sys.modules[NAME]
    when_imported(NAME, lambda: heard.append("again"))
    late = importlib.util.find_spec(NAME)
    assert late is not None
    assert late.loader is not None
    forget_import(NAME)
    late.loader.exec_module(importlib.util.module_from_spec(late))

    assert heard == [NAME]

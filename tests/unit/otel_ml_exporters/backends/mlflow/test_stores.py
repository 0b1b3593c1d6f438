from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from otel_ml.sqlite_address import database_of, sqlite_uri
from otel_ml_exporters.backends.mlflow.artifacts import _thumbnail  # private: MLflow itself takes a minute to import


@pytest.mark.parametrize("name", ["runs", "my%20runs", "who?", "a%41#b & c", "100%", "é 😀", "a\nb"])
def test_a_database_is_in_its_folder_whatever_that_is_called(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "mlflow.db"
    path.parent.mkdir()

    uri = sqlite_uri(path)

    assert database_of(uri) == path
    engine = create_engine(uri)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE made (x INTEGER)"))
    engine.dispose()
    assert path.stat().st_size > 0
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_the_file_of_an_address_with_options_is_known_by_its_name() -> None:
    assert database_of("sqlite:////srv/mlflow.db?timeout=60") == Path("/srv/mlflow.db")
    assert database_of("sqlite:///mlflow.db") == Path("mlflow.db")
    assert database_of("http://mlflow:5000") is None


@pytest.mark.parametrize("png", [b"", b"\x89PNG\r\n\x1a\n torn"])
def test_an_image_that_pillow_cannot_read_has_no_thumbnail(png: bytes) -> None:
    assert _thumbnail(png) is None

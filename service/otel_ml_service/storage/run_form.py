"""The form of `run.db`, for the outbox that writes it and for everybody who reads it."""

from __future__ import annotations

from otel_ml_service.storage.database import Form
from otel_ml_service.versions import RUN

__all__ = ["FORM"]

# `engine.key` is declared BLOB, though its keys are texts: SQLite keeps a text in it as it is, and another declaration
# would be another form of all files.
FORM = Form(
    RUN,
    """
CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, record TEXT NOT NULL, media BLOB);
CREATE TABLE IF NOT EXISTS engine (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS exporters (name TEXT PRIMARY KEY, seq INTEGER NOT NULL, lost TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS notices (id INTEGER PRIMARY KEY, sentence TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS dictionaries (kind TEXT PRIMARY KEY, content BLOB NOT NULL)
""",
)

"""Parameters, texts, tables, media, files: what travels as log records."""

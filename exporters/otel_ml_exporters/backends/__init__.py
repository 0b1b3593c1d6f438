"""One module per backend; each knows only the exporter interface and its own library."""

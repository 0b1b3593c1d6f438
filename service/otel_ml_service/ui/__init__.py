"""`otel-ml ui`: the runs of a folder in a browser, also while they train. Nothing is written."""

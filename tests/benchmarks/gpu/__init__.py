"""What otel_ml costs on a GPU: `make gpu`, or `python -m tests.benchmarks --only gpu --write` where there is one."""

"""The logging interfaces people already use, on top of otel_ml: change one import and keep the code."""

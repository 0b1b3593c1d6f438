"""The service of otel_ml: receives OTLP, aligns by step, reduces across ranks, and has exporters write one run.

Nothing here is public but the command line (`otel-ml`, `python -m otel_ml_service`). What a plug-in uses is in
`otel_ml_exporters`.
"""

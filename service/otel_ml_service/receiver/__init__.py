"""OTLP in: transports, decoding, admission."""

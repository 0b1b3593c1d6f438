"""What was recorded becomes OTLP messages with running numbers."""

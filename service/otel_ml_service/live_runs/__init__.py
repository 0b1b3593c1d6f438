"""The experiment runs a service holds: each an engine, an outbox and its exporters, all fed by one thread."""

"""From the outbox to the exporters: one thread, one position and one retry policy each."""

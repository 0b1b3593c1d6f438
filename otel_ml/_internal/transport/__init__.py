"""From the spool to whoever receives: finding it, sending, what it answers."""

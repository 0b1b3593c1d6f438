"""Which run, role and rank a process is."""

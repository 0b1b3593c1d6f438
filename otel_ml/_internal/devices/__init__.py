"""Values and times that are on an accelerator: read when they are there, and nobody waits."""

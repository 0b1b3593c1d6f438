"""`log()`, `record()`, meters: from the call to what a step has gathered."""

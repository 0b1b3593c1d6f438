"""Who is slow, in which phase and since when, from timers alone: pure, no clock, thread or I/O."""

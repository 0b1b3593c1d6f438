"""From `init()` to the exit of the process: runs, their background threads, forks, signals."""

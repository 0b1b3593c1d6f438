"""Runs on this machine's disk: find them, and read what was recorded, whether they still go on or not."""

"""What the trackers that users move away from have in common: steps of their own, and saying what is not kept."""

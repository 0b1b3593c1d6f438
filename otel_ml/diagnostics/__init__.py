"""What the hardware and the loop are doing, recorded into the same run."""

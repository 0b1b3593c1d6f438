"""Why steps were slow and metrics fell, from what a run recorded: caused, coincided, or cannot tell."""

"""Some steps of a run as a Perfetto trace: spans, metrics, and what was said, for `ui.perfetto.dev`."""

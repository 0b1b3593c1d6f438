"""Axes, the step that is current, and stages."""

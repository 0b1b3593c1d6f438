"""Frameworks with a writer of their own, as the package index has them, each in an environment of its own.

A test runs a program of `examples/migrate`, or the same without the lines that end with `# otel_ml`. What the framework
then wrote by itself, into W&B's or TensorBoard's own files, is what the run has to have.
"""

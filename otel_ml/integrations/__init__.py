"""One module per framework, on the public API only; the framework is imported inside. `stages`: for own loops."""

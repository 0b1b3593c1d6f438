"""`timed()`, `timer()`, `steps()`, and the spans of both."""

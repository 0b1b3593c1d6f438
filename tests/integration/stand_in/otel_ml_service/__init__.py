"""Takes the place of the service in tests."""

"""What a person would look at, in a real browser; pictures of it in `build/screenshots/`."""

"""Everything behind the public names; nothing here is API."""

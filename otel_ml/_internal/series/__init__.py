"""What a record points to, the flat list of records, and what a step has gathered of each series."""

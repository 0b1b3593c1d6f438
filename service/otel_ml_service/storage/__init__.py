"""The only owner of files on disk: the journal (input) and the outbox (closed records, positions, engine state)."""

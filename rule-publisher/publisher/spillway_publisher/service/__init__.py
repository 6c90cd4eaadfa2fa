"""The running publisher: handles proposals, publishes versions, stores the relays' reports.

Decisions are made in `rules`.
"""

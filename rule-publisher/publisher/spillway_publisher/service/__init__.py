"""The running publisher: proposals in, versions out, reports of the relays.

Decisions are taken in `rules`.
"""

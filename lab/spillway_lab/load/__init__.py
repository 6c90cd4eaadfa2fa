"""Open-loop load and what the client measured of it.

Scenarios say how much; this room only sends and counts.
"""

"""Open-loop load, what the client measured of each request, and what processes used meanwhile.

Scenarios set the amount of load. This package only sends requests and counts the answers.
"""

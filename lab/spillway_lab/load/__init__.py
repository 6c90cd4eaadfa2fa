"""Open-loop load, and what the client measured of each request.

Scenarios set the amount of load. This package only sends requests and counts the answers.
"""

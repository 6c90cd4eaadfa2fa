"""Tail targets, on top of a solver's routing.

What a millisecond of a p99 counts, and the search for a routing that meets targets, belong here.
How a p99 is estimated does not (`problem/tails.py`), nor how a routing is found (`solvers`).
"""

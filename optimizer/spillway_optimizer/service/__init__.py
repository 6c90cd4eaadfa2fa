"""The running optimizer: read, solve, judge, publish, store.

The loop is `loop.py`, one run is `solving.py`; what is computed in between is pure.
"""

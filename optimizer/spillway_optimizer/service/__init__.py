"""The running optimizer: read, solve, judge, publish, store.

`loop.py` contains the loop, and `solving.py` contains one run. The computations in between are
pure.
"""

"""The running optimizer: a loop around runs, with servers, clocks and child processes.

`loop.py` contains the loop. `solving/` contains a run and decides everything.
"""

"""One run of the optimizer: route, judge, decide, propose, store.

`solving.py` contains a run. Servers are known only as `mesh.py`, and what `schedule.py` decides
from is given to it, so the same run goes on a clock that is stepped.
"""

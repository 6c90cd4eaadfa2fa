"""The call graph: calls per request, bytes, outcomes, and network times per cluster pair.

Pure. The job `graph` owns the state.
"""

"""The call graph: calls per request, bytes, outcomes, and network times per pair of clusters.

Pure. The job `graph` owns the state.
"""

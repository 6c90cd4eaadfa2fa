"""The lab: emulated clusters, load, the local stack and the experiments that run on it.

It starts the other components as programs and imports none of them.
"""

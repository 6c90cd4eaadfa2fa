"""The lab: emulated clusters, load, the local stack and experiments on it.

Runs the other boxes as programs; imports none of them.
"""

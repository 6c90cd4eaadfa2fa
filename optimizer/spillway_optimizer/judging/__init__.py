"""Judges whether a change had the predicted effect, and keeps a leader's memory of its proposals.

Pure. `service` calls this package and acts on the result.
"""

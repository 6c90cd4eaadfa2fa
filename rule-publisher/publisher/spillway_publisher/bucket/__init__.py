"""The NATS bucket of signed rulesets: versions, signatures, checkpoints.

Versions are assigned in `bucket.py` and nowhere else.
"""

"""The NATS bucket of signed rulesets: versions, signatures, checkpoints.

Versions are given in `bucket.py` and nowhere else.
"""

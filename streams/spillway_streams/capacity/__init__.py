"""Requests per second at which one pod saturates: four kinds of evidence, and how evidence ages.

Pure. Only `evidence.py` chooses between the kinds.
"""

"""Requests per second at which one pod saturates, from four kinds of evidence, and how evidence ages.

Pure. The choice between the kinds is made in `evidence.py` alone.
"""

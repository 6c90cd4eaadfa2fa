"""What the runs of experiments have found: figures beside the papers' figures, and verdicts.

This package reads results and runs nothing.
"""

"""What the runs of experiments show: figures beside the papers' figures, verdicts, and pages.

This package reads results and runs nothing.
"""

"""Experiments with figures as results: the demo, learned models against known queues, and replays.

Each experiment ends with a report.
"""

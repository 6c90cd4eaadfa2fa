"""Experiments with figures as results: scenarios, learned models against known queues, replays.

Each experiment ends with a report.
"""

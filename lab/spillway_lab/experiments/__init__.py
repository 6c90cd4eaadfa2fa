"""Runs that prove something: the demo, learned models against known queues, recorded traces.

Each ends in a report of figures.
"""

"""Real servers and helpers for tests of every box.

Imports nothing else of the lab, so that no box depends on another through its tests.
"""

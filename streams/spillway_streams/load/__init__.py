"""Calls and CPU use per second: the tables that curves and capacities are computed from.

Pure: time is an argument, and nothing is read or written.
"""

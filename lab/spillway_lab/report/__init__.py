"""Output for people and machines: tables, JSON lines, plots and progress.

This package measures nothing itself.
"""

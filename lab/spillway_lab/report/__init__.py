"""Figures for people and machines: tables, JSON lines, plots, progress.

Measures nothing itself.
"""

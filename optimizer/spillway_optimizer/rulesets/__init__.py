"""Turns a solution into rules that are sent: extraction, hysteresis, verification, reasons.

Pure. Every ruleset passes `verify.py` before it leaves the process.
"""

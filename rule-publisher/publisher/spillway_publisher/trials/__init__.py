"""Judges rulesets on trial, and proposes how a trial ends.

Pure: time, answers and calls are arguments.
"""

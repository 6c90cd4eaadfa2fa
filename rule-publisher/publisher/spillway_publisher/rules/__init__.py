"""Decides about a proposal: checks, fences, guardrails, merging with the rulesets in force.

Pure: time and state are arguments.
"""

"""What becomes of a proposal: checks, fences, guardrails, merging with what is in force.

Pure: time and state are arguments.
"""

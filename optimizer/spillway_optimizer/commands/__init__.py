"""The commands of `spillway` that only look: plan and explain.

Nothing here publishes. Where situations come from is in `sources`.
"""

"""The commands of `spillway` that only read: plan and explain.

Nothing here publishes. `sources` provides the situations.
"""

"""Disables Hypothesis deadlines, because a busy machine can be slow in any example."""

from hypothesis import settings

settings.register_profile("spillway", settings(), deadline=None)
settings.load_profile("spillway")

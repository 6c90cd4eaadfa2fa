"""Real servers and helpers for the tests of all components.

This package imports nothing else of the lab, so that no component depends on another through its
tests.
"""

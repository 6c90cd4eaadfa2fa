"""Explains why calls are split as they are: marginal costs, and what holds a split in place.

Pure. Sentences for people are written in `commands`.
"""

"""A running copy of the local stack: its supervisor, the WAN's delays, and what operators ask it.

Files come from `render`.
"""

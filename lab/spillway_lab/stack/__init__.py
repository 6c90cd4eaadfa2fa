"""A running copy of the local stack: its supervisor, the WAN's delays and an operator's queries.

`render` produces the files.
"""

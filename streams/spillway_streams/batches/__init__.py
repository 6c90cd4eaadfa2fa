"""Rows as columns: Arrow messages, ClickHouse's native blocks, and the positions that make them exactly once.

No I/O, and no meaning of the rows: that is for `load`, `graph` and `classes`.
"""

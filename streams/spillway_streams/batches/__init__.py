"""Rows as columns: Arrow messages, ClickHouse blocks, and positions for exactly-once processing.

Nothing here does I/O or knows what the rows mean. The meaning is in `load`, `graph` and `classes`.
"""

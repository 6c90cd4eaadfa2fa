"""Redis and ClickHouse: hot state and the audit.

Neither may hold up publishing.
"""

"""Redis and ClickHouse: hot state and audit.

Neither of them may delay publishing.
"""

"""ClickHouse's schema, grants and users, and the stand-in for its server in development.

It knows the wire protocol and SQL files, and nothing of what the rows mean.
"""

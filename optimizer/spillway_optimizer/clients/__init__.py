"""Connections: Redis, ClickHouse, NATS, and the lease of the leader.

Only this room talks to servers. It decides nothing.
"""

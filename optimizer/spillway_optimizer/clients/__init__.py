"""Connections: Redis, ClickHouse, NATS, and the leader's lease.

Only this package talks to servers. It makes no decisions.
"""

"""Connections: Kafka producers and consumers, ClickHouse, Redis.

Only this room and `topics` talk to servers. It decides nothing about what is sent.
"""

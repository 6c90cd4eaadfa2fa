"""Connections: Kafka producers and consumers, ClickHouse, Redis.

Jobs talk to servers through this package and `topics`; only jobs/admitted.py opens a consumer of
its own. Nothing here decides what is sent.
"""

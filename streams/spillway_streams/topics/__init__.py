"""Kafka topics and access rights as infra/kafka declares them, and the calls that create them.

Jobs read and write messages through `clients`, not through this package.
"""

"""Kafka topics and rights as declared in infra/kafka, and the administrator's calls that create them.

Jobs read and write messages through `clients`, not from here.
"""

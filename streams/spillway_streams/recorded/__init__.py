"""Recorded traces from files: Jaeger and OTLP JSON, sent to a collector or made into a model without servers.

Nothing of the running jobs depends on this room.
"""

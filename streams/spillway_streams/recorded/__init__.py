"""Recorded traces from files (Jaeger and OTLP JSON): sent to a collector, or made into a model.

Making a model needs no server. No running job depends on this package.
"""

"""The publisher: it checks, versions, signs and publishes rulesets, and serves operators' commands.

Proposals come from the optimizer over NATS. Nothing in this package computes weights from
telemetry.
"""

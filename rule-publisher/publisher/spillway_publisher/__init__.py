"""The publisher: guards, versions, signs and publishes rulesets, and answers operators.

Proposals come from the optimizer over NATS; nothing here computes weights from telemetry.
"""

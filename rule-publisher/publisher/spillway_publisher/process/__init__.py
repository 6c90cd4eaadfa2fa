"""The process around the publisher: configuration, telemetry, and loops that run side by side.

Nothing in this package knows rulesets.
"""

"""What the publisher's process needs: configuration, telemetry, metrics, loops side by side.

Nothing here knows rulesets.
"""

"""Settings, logs, health, counters and metrics: what every process of this box needs.

Nothing here knows about spans, models or Kafka's wire protocol.
"""

"""What every process of this box needs: settings, logs, health, counters, metrics.

Nothing here knows spans, models or Kafka's wire.
"""

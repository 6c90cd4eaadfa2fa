"""Reads a collector's own counters for tests."""

import re

from collector_process import Collector
from spillway_lab.testing.waiting import eventually

EXPORTER = "otelcol_exporter_kafka_partition"


def samples(prometheus: str, name: str, labels: str = "") -> float:
    """Returns the sum of the samples whose name and labels match."""
    found = re.findall(rf"^{name}\{{.*{labels}.*\}} (\S+)$", prometheus, re.MULTILINE)
    return sum(float(value) for value in found)


def counted(running: Collector, name: str, labels: str = "") -> float:
    """Returns a counter of our Kafka exporter. `name` is without the prefix."""
    return samples(running.metrics(), f"{EXPORTER}_{name}", labels)


def settles(running: Collector, name: str, value: float, labels: str = "") -> None:
    """Waits until the counter has this value.

    A reader of the topic may be faster than the broker's answer to the collector.
    """
    eventually(
        lambda: counted(running, name, labels) == value,
        f"{name} is {value}",
        seen=lambda: counted(running, name, labels),
    )

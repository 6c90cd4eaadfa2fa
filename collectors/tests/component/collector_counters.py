"""A collector's own counters, as a test reads them."""

import re

from collector_process import Collector
from spillway_lab.testing.waiting import eventually

EXPORTER = "otelcol_exporter_kafka_partition"


def samples(prometheus: str, name: str, labels: str = "") -> float:
    """Sum of the samples whose name and labels match."""
    found = re.findall(rf"^{name}\{{.*{labels}.*\}} (\S+)$", prometheus, re.MULTILINE)
    return sum(float(value) for value in found)


def counted(running: Collector, name: str, labels: str = "") -> float:
    """That of our exporter, its name without the prefix."""
    return samples(running.metrics(), f"{EXPORTER}_{name}", labels)


def settles(running: Collector, name: str, value: float, labels: str = "") -> None:
    """It reads so in the end: a reader of the topic may be faster than the broker's answer."""
    eventually(
        lambda: counted(running, name, labels) == value,
        f"{name} is {value}",
        seen=lambda: counted(running, name, labels),
    )

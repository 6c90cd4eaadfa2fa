"""GET /metrics of a Python box: the families that its table declares, read at each scrape.

The box does the counting; this module only formats the answer. A family without a sample yet still
has its HELP and TYPE. A counter without labels then reads 0, so that a rate over it exists from the
start.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Exposition", "Family", "Sample", "table"]


class Family(NamedTuple):
    """One row of a box's table of metrics.

    A counter's name ends in _total; all others are gauges. Units are base units.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def is_counter(self) -> bool:
        return self.name.endswith("_total")

    def metric(self) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if self.is_counter else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)


class Sample(NamedTuple):
    """One value of a family. `labels`: values in the order of the family's labels."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


class Exposition:
    """A prometheus_client collector over `read`, with the process's own CPU, memory and files."""

    def __init__(self, families: Sequence[Family], read: Callable[[], Iterable[Sample]]) -> None:
        self._families, self._read = families, read
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def describe(self) -> list[Metric]:
        return [family.metric() for family in self._families]

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics.

        Raises KeyError for a sample whose family the table does not declare.
        """
        metrics = {family.name: family.metric() for family in self._families}
        silent = {family.name for family in self._families if family.is_counter and not family.labels}
        for name, value, labels in self._read():
            metrics[name].add_metric(labels, value)
            silent.discard(name)
        for name in silent:
            metrics[name].add_metric((), 0)
        yield from metrics.values()

    def text(self) -> bytes:
        """Returns the body of the answer, of type CONTENT_TYPE."""
        return generate_latest(self._registry)


def table(families: Iterable[Family]) -> str:
    """Returns the table of REFERENCE.md of these families."""
    rows = ["| metric | labels | what |", "|---|---|---|"]
    for name, description, labels in families:
        rows.append(f"| `{name}` | {', '.join(f'`{label}`' for label in labels)} | {description} |")
    return "\n".join(rows) + "\n"

"""One service as a model: class weights, capacity per cluster, and the utilisation of every second
of every class. Pure; reads the tables of load.py and cpu.py.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from spillway_streams import capacity, weights
from spillway_streams.capacity import Capacity
from spillway_streams.cpu import CpuTable
from spillway_streams.load import Key, LoadTable, Sum, ratio

MAX_U = 0.99
_REPLICA_WINDOW_S = 10


@dataclass(frozen=True)
class Seconds:
    """One service in one cluster: seconds (n,) and, per class, sums (n, classes, len(Sum))."""

    at: np.ndarray
    sums: np.ndarray

    def total(self, what: Sum) -> np.ndarray:
        return self.sums[:, :, what].sum(axis=1)


@dataclass(frozen=True)
class Samples:
    """Of one class in one cluster, per second (n,): utilisation, mean exclusive time (ms), its
    spread within the second, and the number of samples."""

    at: np.ndarray
    u: np.ndarray
    exclusive_ms: np.ndarray
    sd_ms: np.ndarray
    samples: np.ndarray


@dataclass(frozen=True)
class Service:
    """A service's classes in order of their names, their weights, and what each cluster can do."""

    classes: list[str]
    weights: np.ndarray
    capacities: dict[str, Capacity]
    seconds: dict[str, Seconds]

    def normalised(self, cluster: str, what: Sum) -> np.ndarray:
        """A count per second (n,) in requests of the baseline class."""
        return self.seconds[cluster].sums[:, :, what] @ self.weights

    def arrival_rate(self, cluster: str) -> np.ndarray:
        """Arrivals per second (n,) in requests of the baseline class, over a few seconds around each.

        From the stamp, which is what one proxy counted over the second before each arrival; where
        there is none (other tracers' spans), from the arrivals' own timestamps.
        """
        seconds = self.seconds[cluster]
        normalised, arrivals = self.normalised(cluster, Sum.ARRIVALS), seconds.total(Sum.ARRIVALS)
        stamped = capacity.moving_rate(seconds.at, seconds.total(Sum.STAMPED))
        stamp = ratio(capacity.moving_rate(seconds.at, seconds.total(Sum.RATE)), stamped)
        counted = capacity.moving_rate(seconds.at, normalised)
        mix = ratio(counted, capacity.moving_rate(seconds.at, arrivals))
        return np.where(stamped > 0, stamp * replicas(seconds) * mix, counted)

    def measured(self) -> list[str]:
        """Clusters whose samples tell something: those with a capacity of their own, else all."""
        own = [cluster for cluster in self.seconds if self.knows(cluster)]
        return own or list(self.seconds)

    def knows(self, cluster: str) -> bool:
        return cluster in self.capacities and not self.capacities[cluster].assumed

    def utilisation(self, cluster: str) -> np.ndarray:
        """Arrival rate in units of capacity per second (n,), at most MAX_U; 0 without a capacity."""
        if cluster not in self.capacities:
            return np.zeros(len(self.seconds[cluster].at))
        return np.clip(self.arrival_rate(cluster) / self.capacities[cluster].rps, 0, MAX_U)

    def samples(self, class_id: str, cluster: str) -> Samples:
        seconds = self.seconds[cluster]
        sums = seconds.sums[:, self.classes.index(class_id), :]
        mean = ratio(sums[:, Sum.EXCLUSIVE], sums[:, Sum.OK])
        variance = ratio(sums[:, Sum.EXCLUSIVE_SQUARED], sums[:, Sum.OK]) - mean**2
        spread = np.sqrt(np.maximum(variance, 0))
        return Samples(seconds.at, self.utilisation(cluster), mean, spread, sums[:, Sum.SAMPLES])


def replicas(seconds: Seconds) -> np.ndarray:
    """How many proxies share a service's arrivals, per second (n,): counted rate over stamped rate."""
    counted = capacity.moving_rate(seconds.at, seconds.total(Sum.ARRIVALS), _REPLICA_WINDOW_S)
    stamp = capacity.moving_rate(seconds.at, seconds.total(Sum.RATE), _REPLICA_WINDOW_S)
    stamped = capacity.moving_rate(seconds.at, seconds.total(Sum.STAMPED), _REPLICA_WINDOW_S)
    return np.maximum(np.rint(ratio(counted, ratio(stamp, stamped))), 1)


def gather(table: LoadTable) -> dict[str, dict[str, dict[str, Key]]]:
    """service -> cluster -> class -> key, in order of names."""
    found: dict[str, dict[str, dict[str, Key]]] = defaultdict(lambda: defaultdict(dict))
    for key in sorted(table.series):
        found[key.service][key.cluster][key.class_id] = key
    return found


def model(
    service: str, keys: dict[str, dict[str, Key]], table: LoadTable, cpu: CpuTable, recent: int
) -> Service:
    """Everything about one service; capacities are taken from the last `recent` seconds with data."""
    classes = sorted({class_id for by_class in keys.values() for class_id in by_class})
    seconds = {cluster: _seconds(by_class, classes, table) for cluster, by_class in keys.items()}
    use = {cluster: cpu.series(service, cluster) for cluster in keys}
    class_weights = _weights(classes, seconds, use)
    bare = Service(classes, class_weights, {}, seconds)
    capacities = {}
    for cluster in keys:
        found = _capacity(bare, cluster, *use[cluster], recent)
        if found:
            capacities[cluster] = found
    capacities |= _assumed(capacities, [cluster for cluster in keys if cluster not in capacities])
    return Service(classes, class_weights, capacities, seconds)


def _seconds(by_class: dict[str, Key], classes: list[str], table: LoadTable) -> Seconds:
    series = {class_id: table.series[key].all() for class_id, key in by_class.items()}
    at = np.unique(np.concatenate([seconds for seconds, _ in series.values()]))
    sums = np.zeros((len(at), len(classes), len(Sum)))
    for class_id, (own_at, own) in series.items():
        sums[np.searchsorted(at, own_at), classes.index(class_id)] = own
    return Seconds(at, sums)


def _weights(
    classes: list[str], seconds: dict[str, Seconds], use: dict[str, tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    if len(classes) == 1:
        return np.ones(1)
    found = []
    for cluster, one in seconds.items():
        both, load_rows, cpu_rows = np.intersect1d(one.at, use[cluster][0], return_indices=True)
        served = np.stack(
            [capacity.moving_mean(both, column) for column in one.sums[load_rows, :, Sum.OK].T], axis=1
        )
        share = capacity.moving_mean(both, use[cluster][1][cpu_rows])
        below = share < capacity.SATURATED
        by_cpu = weights.from_cpu(served[below], share[below])
        if by_cpu is not None:
            found.append((by_cpu, float(below.sum())))
    if found:
        return weights.pooled(found)
    sums = np.concatenate([one.sums for one in seconds.values()])
    mean = ratio(sums[:, :, Sum.EXCLUSIVE], sums[:, :, Sum.OK])
    return weights.from_exclusive(sums[:, :, Sum.ARRIVALS], mean, sums[:, :, Sum.SAMPLES])


def _assumed(known: dict[str, Capacity], unknown: list[str]) -> dict[str, Capacity]:
    """A cluster that tells no capacity of its own gets the smallest known one, and the row says so."""
    if not known:
        return {}
    cluster, least = min(known.items(), key=lambda item: (item[1].rps, item[0]))
    reason = f"assumed as in {cluster}: own load does not tell"
    return {name: Capacity(least.rps, least.source, reason, assumed=True) for name in unknown}


def _capacity(
    bare: Service, cluster: str, cpu_at: np.ndarray, cpu: np.ndarray, recent: int
) -> Capacity | None:
    seconds = bare.seconds[cluster]
    both, load_rows, cpu_rows = np.intersect1d(seconds.at, cpu_at, return_indices=True)
    served = bare.normalised(cluster, Sum.OK)[load_rows]
    found = capacity.from_cpu(both[-recent:], served[-recent:], cpu[cpu_rows][-recent:])
    if found:
        return found
    exclusive = ratio(seconds.total(Sum.EXCLUSIVE), seconds.total(Sum.OK))
    return capacity.from_curve(bare.arrival_rate(cluster), exclusive, seconds.total(Sum.SAMPLES))

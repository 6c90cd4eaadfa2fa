"""One service as a model: class weights, capacity per cluster, and utilisation per second.

Pure; reads the tables of load.py and cpu.py.
"""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.capacity import backlog, capacity, change, evidence, outliers, restart, saturation
from spillway_streams.capacity.capacity import Capacity
from spillway_streams.curves import weights
from spillway_streams.load import rates
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import Key, LoadTable, Sum, ratio
from spillway_streams.load.load_rates import Seconds, class_rates, proxies, served, stamped

MAX_U = 0.99
OVERLOAD = 0.98  # utilisation from which on a queue only grows: no steady state to learn from
_EXCESS = 0.15
_LONGEST = 1.5  # times the mean latency: nearly every request of a second has ended by then
_PODS_STAND_S = 300  # seconds around a CPU reading in which it counts pods; elsewhere proxies do


@dataclass(frozen=True)
class Cluster:
    """A service in one cluster, per second (n,).

    `rates`: arrivals per second by class, shape (n, classes). `served`: requests per second
    completed by one pod, same shape. `pods`: number of pods. `cpu`: mean CPU use over the same few
    seconds as `served`, NaN where pods report none. `counted`: pods in the newest second, 0 if
    nothing counts them. `outlying`: outliers (n, classes); for these `seconds` holds interpolated
    values, and there are no samples.
    """

    seconds: Seconds
    outlying: Bools
    rates: Floats
    served: Floats
    pods: Floats
    cpu: Floats
    counted: int

    def settled(self) -> Bools:
        """Seconds (n,) around which the number of pods is constant; other windows mix two."""
        at, width = self.seconds.at, rates.WIDTHS[-1]
        constant: Bools = rates.most(at, self.pods, width) == -rates.most(at, -self.pods, width)
        return constant

    def latency(self) -> Floats:
        """Mean exclusive time, ms, (n, classes); 0 where there is no sample."""
        return ratio(self.seconds.sums[:, :, Sum.EXCLUSIVE], self.seconds.sums[:, :, Sum.OK])

    def samples(self) -> Floats:
        """Number of samples (n, classes); 0 for outliers."""
        return np.where(self.outlying, 0.0, self.seconds.sums[:, :, Sum.SAMPLES])


@dataclass(frozen=True)
class Samples:
    """Samples of one class in one cluster, per second (n,).

    Utilisation, mean exclusive time (ms), its spread within the second, and the number of samples.
    That number is 0 in seconds without a steady state;
    `samples_including_overload` includes those seconds.
    """

    at: Ints
    u: Floats
    exclusive_ms: Floats
    sd_ms: Floats
    samples: Floats
    samples_including_overload: Floats


@dataclass(frozen=True)
class Service:
    """A service's classes in order of name, their weights, and the capacity of each cluster."""

    classes: list[str]
    weights: Floats
    capacities: dict[str, Capacity]
    clusters: dict[str, Cluster]
    utilisation: dict[str, Floats]
    steady: dict[str, Bools]

    def measured(self) -> list[str]:
        """Returns the clusters to learn from: those with a capacity of their own, or else all."""
        known = [cluster for cluster in self.clusters if self.knows(cluster)]
        return known or list(self.clusters)

    def knows(self, cluster: str) -> bool:
        """Whether the cluster has a capacity of its own, rather than an assumed one."""
        return cluster in self.capacities and not self.capacities[cluster].assumed

    def outlying(self, class_id: str) -> dict[str, Ints]:
        """Returns, by cluster, the Unix seconds in which a class is an outlier."""
        column = self.classes.index(class_id)
        return {
            name: cluster.seconds.at[cluster.outlying[:, column]] for name, cluster in self.clusters.items()
        }

    def samples(self, class_id: str, cluster: str) -> Samples:
        """Returns the samples of one class in one cluster."""
        column = self.classes.index(class_id)
        sums = self.clusters[cluster].seconds.sums[:, column, :]
        mean = ratio(sums[:, Sum.EXCLUSIVE], sums[:, Sum.OK])
        variance = ratio(sums[:, Sum.EXCLUSIVE_SQUARED], sums[:, Sum.OK]) - mean**2
        class_samples = self.clusters[cluster].samples()[:, column]
        counted = np.where(self.steady[cluster], class_samples, 0)
        at, u = self.clusters[cluster].seconds.at, self.utilisation[cluster]
        return Samples(at, u, mean, np.sqrt(np.maximum(variance, 0)), counted, class_samples)


@dataclass(frozen=True)
class Recorded:
    """A copy of what the tables hold of one service, so that they can go on while a model is made.

    `load`: by cluster and class, the result of load.Series.all. `cpu`: by cluster, the result of
    CpuTable.series. `memory`: number of seconds that a model covers.
    """

    name: str
    memory: int
    load: dict[str, dict[str, tuple[Ints, Floats]]]
    cpu: dict[str, tuple[Ints, Floats, Floats]]


def record(name: str, keys: dict[str, dict[str, Key]], table: LoadTable, cpu: CpuTable) -> Recorded:
    """Copies the tables' data for these keys.

    Keys that the tables have dropped are left out, so the copy may be empty.
    """
    known = {
        cluster: {
            class_id: table.series[key].all() for class_id, key in by_class.items() if key in table.series
        }
        for cluster, by_class in keys.items()
    }
    load = {cluster: by_class for cluster, by_class in known.items() if by_class}
    return Recorded(name, table.memory, load, {cluster: cpu.series(name, cluster) for cluster in load})


def gather(table: LoadTable) -> dict[str, dict[str, dict[str, Key]]]:
    """Returns service -> cluster -> class -> key, in order of names."""
    found: dict[str, dict[str, dict[str, Key]]] = defaultdict(lambda: defaultdict(dict))
    for key in sorted(table.series):
        found[key.service][key.cluster][key.class_id] = key
    return found


def model(recorded: Recorded, recent: int) -> Service:
    """Computes the model of one service.

    Capacities are taken from the last `recent` seconds with data.
    """
    classes = sorted({class_id for series in recorded.load.values() for class_id in series})
    clusters = {
        name: _cluster(series, classes, recorded.cpu[name], recorded.memory)
        for name, series in recorded.load.items()
    }
    class_weights = _weights(classes, clusters)
    capacities = {}
    for name, cluster in clusters.items():
        found = _capacity(cluster, class_weights, recent)
        if found:
            capacities[name] = found
    capacities |= _assumed(capacities, clusters)
    utilisation, steady = {}, {}
    for name, cluster in clusters.items():
        u = _load(cluster, class_weights, capacities.get(name))
        utilisation[name] = np.clip(u, 0, MAX_U)
        steady[name] = _steady(cluster.seconds.at, u) & cluster.settled()
    return Service(classes, class_weights, capacities, clusters, utilisation, steady)


def _cluster(
    series: dict[str, tuple[Ints, Floats]], classes: list[str], cpu: tuple[Ints, Floats, Floats], memory: int
) -> Cluster:
    recorded = _seconds(series, classes, memory)
    found = outliers.find(recorded)
    seconds = outliers.without(recorded, found)
    use, pods = np.full(len(seconds.at), np.nan), proxies(seconds)
    counted = pods[-1] if stamped(seconds) else 0.0
    cpu_at, cpu_use, cpu_pods = cpu
    if len(cpu_at):
        _, rows, cpu_rows = np.intersect1d(seconds.at, cpu_at, return_indices=True)
        use[rows] = rates.moving_mean(cpu_at, cpu_use)[cpu_rows]
        last = np.maximum(np.searchsorted(cpu_at, seconds.at, side="right") - 1, 0)
        is_fresh = np.abs(seconds.at - cpu_at[last]) <= _PODS_STAND_S
        pods[is_fresh] = cpu_pods[last[is_fresh]]
        # One count misses pods that report no CPU use, the other pods that got no request.
        counted = max(counted, pods[-1]) if is_fresh[-1] else counted
    return Cluster(
        seconds, found.all, class_rates(seconds), served(seconds) / pods[:, None], pods, use, round(counted)
    )


def _seconds(series: dict[str, tuple[Ints, Floats]], classes: list[str], memory: int) -> Seconds:
    """Returns the newest `memory` seconds in which any class has data.

    Rare classes hold some seconds that are far older; these are left out.
    """
    at = np.unique(np.concatenate([seconds for seconds, _ in series.values()]))[-memory:]
    sums = np.zeros((len(at), len(classes), len(Sum)))
    for class_id, (class_at, class_sums) in series.items():
        kept = class_at >= at[0]
        sums[np.searchsorted(at, class_at[kept]), classes.index(class_id)] = class_sums[kept]
    return Seconds(at, sums)


def _weights(classes: list[str], clusters: dict[str, Cluster]) -> Floats:
    if len(classes) == 1:
        return np.ones(1)
    sums = np.concatenate([cluster.seconds.sums for cluster in clusters.values()])
    latency = np.concatenate([cluster.latency() for cluster in clusters.values()])
    prior = weights.from_exclusive(sums[:, :, Sum.ARRIVALS], latency, sums[:, :, Sum.SAMPLES])
    rows = [~np.isnan(cluster.cpu) & (cluster.cpu < capacity.SATURATED) for cluster in clusters.values()]
    done = np.concatenate([cluster.served[row] for cluster, row in zip(clusters.values(), rows, strict=True)])
    use = np.concatenate([cluster.cpu[row] for cluster, row in zip(clusters.values(), rows, strict=True)])
    return weights.from_cpu(prior, done, use, rates.WIDTHS[0])


def _assumed(known: dict[str, Capacity], clusters: dict[str, Cluster]) -> dict[str, Capacity]:
    """Returns capacities for the clusters without one of their own.

    Each of their pods gets the capacity of the weakest known pod, and the reason says so.
    """
    if not known:
        return {}
    cluster, least = min(known.items(), key=lambda item: (item[1].rps / item[1].pods, item[0]))
    reason = (
        f"assumed as in {cluster}, {least.rps / least.pods:.1f} rps per pod: no evidence from its own load"
    )
    return {
        name: replace(
            least,
            rps=least.rps / least.pods * float(cluster.pods[-1]),
            se=least.se / least.pods * float(cluster.pods[-1]),
            pods=float(cluster.pods[-1]),
            counted=cluster.counted,
            reason=reason,
            assumed=True,
            changed_at=0,
            before=None,
        )
        for name, cluster in clusters.items()
        if name not in known
    }


def _capacity(cluster: Cluster, class_weights: Floats, recent: int) -> Capacity | None:
    """Capacity of the cluster's newest number of pods, from all evidence since the last change."""
    seen = _Seen.of(cluster, class_weights)
    found = seen.now(np.flatnonzero(cluster.settled()), recent)
    if found is None:
        return None
    pods = float(cluster.pods[-1])
    several = f"; {pods:.0f} pods of {found.rps:.1f} rps" if pods > 1 else ""
    outlying = int(cluster.outlying[-recent:].any(axis=1).sum())
    return found.times(pods, cluster.counted, several + left_out(outlying))


def left_out(seconds: int) -> str:
    """Returns what a reason adds about seconds that are left out as outliers; '' for none."""
    return f"; {seconds} s left out as outliers" if seconds else ""


@dataclass(frozen=True)
class _Seen:
    """What one pod did in each of the seconds `at` (n,), in units of the baseline class.

    `rate`: smoothed arrivals per second; `arrived`: counted arrivals that did not fail; `done`: the
    same over the few seconds of `cpu`; `failed`: share of failures; `latency`: mean over all
    classes (ms); `relative`: mean latency relative to that of each class. By class (n, classes):
    `latencies` and `samples`.
    """

    at: Ints
    rate: Floats
    arrived: Floats
    done: Floats
    cpu: Floats
    failed: Floats
    latency: Floats
    relative: Floats
    latencies: Floats
    samples: Floats

    @staticmethod
    def of(cluster: Cluster, class_weights: Floats) -> "_Seen":
        seconds, latencies, samples = cluster.seconds, cluster.latency(), cluster.samples()
        ok = seconds.sums[:, :, Sum.OK]
        usual = ratio((latencies * samples).sum(axis=0), samples.sum(axis=0))
        relative = np.divide(latencies, usual, out=np.zeros_like(latencies), where=usual > 0)
        return _Seen(
            seconds.at,
            cluster.rates @ class_weights / cluster.pods,
            ok @ class_weights / cluster.pods,
            cluster.served @ class_weights,
            cluster.cpu,
            ratio(seconds.total(Sum.FAILED), seconds.total(Sum.ARRIVALS)),
            ratio(seconds.sums[:, :, Sum.EXCLUSIVE].sum(axis=1), ok.sum(axis=1)),
            ratio((relative * samples).sum(axis=1), samples.sum(axis=1)),
            latencies,
            samples,
        )

    def now(self, rows: Ints, recent: int, changes: int = 3) -> Capacity | None:
        """Capacity from the evidence since the newest change; goes back over `changes` at most."""
        found = self.changed(rows) if changes else None
        if found is None:
            return self.capacity(rows, recent)
        second, factor = found
        old, new = np.split(rows, [np.searchsorted(self.at[rows], second)])
        before = self.now(old, recent, changes - 1)
        slowed = self.slowed(before, old[-recent:], new) if before else 0.0
        after = restart.after(before, self.capacity(new, recent), factor, slowed)
        if after is None:
            return None
        reason = f"{after.reason}; since {second}, when it changed by a factor of {factor:.1f}"
        return replace(after, reason=reason, changed_at=second, before=before or after)

    def changed(self, rows: Ints) -> tuple[int, float] | None:
        """Returns the newest change of latency or of CPU use per request, and its factor."""
        rows = rows[~backlog.overloaded(self.at[rows], self.rate[rows], self.latency[rows])]
        cost = np.nan_to_num(ratio(self.cpu, self.done))[rows]
        found = [
            change.last(self.at[rows], self.rate[rows], self.relative[rows], change.LATENCY),
            change.last(self.at[rows], self.rate[rows], cost, change.CPU),
        ]
        return max((value for value in found if value is not None), default=None)

    def complete(self, rows: Ints) -> Ints:
        """Returns the rows before the first one that may still have requests waiting.

        A call becomes known only when it has ended.
        """
        if not len(rows):
            return rows
        wait = rates.most(self.at[rows], self.latency[rows] / 1000, rates.WIDTHS[1])
        waiting = np.flatnonzero(self.at[rows] + _LONGEST * wait > self.at[-1])
        return rows[: waiting[0]] if len(waiting) else rows

    def capacity(self, rows: Ints, recent: int) -> Capacity | None:
        rows = self.complete(rows)
        known, late = rows[~np.isnan(self.cpu[rows])][-recent:], rows[-recent:]
        done, use = self.done[known], self.cpu[known]
        # While the latency rises, requests pile up: they leave later than they arrive.
        growth = np.gradient(self.latency[known] / 1000) if len(known) > 1 else np.zeros(len(known))
        return evidence.weigh(
            capacity.from_cpu(done, use, growth),
            saturation.from_latency(
                self.at[rows], self.rate[rows], self.done[rows], self.failed[rows], self.latencies[rows],
                self.samples[rows],
            ),
            backlog.from_backlog(self.at[late], self.arrived[late], self.latency[late]),
            capacity.proportional(done, use, "its use does not follow the load"),
            "CPU use does not follow the load" if len(known) else "no CPU use reported",
        )  # fmt: skip

    def slowed(self, before: Capacity, old: Ints, new: Ints) -> float:
        old, new = old[self.latency[old] > 0], new[self.latency[new] > 0]
        if not len(old) or not len(new):
            return before.rps
        load = self.rate[new].mean()
        near = old[np.argsort(np.abs(self.rate[old] - load))[: max(len(old) // 4, 1)]]
        wait = float(self.latency[near].mean()) / 1000, float(self.latency[new].mean()) / 1000
        left = restart.completed(self.arrived[new], self.latency[new])
        return restart.slower(before.rps, (float(self.rate[near].mean()), float(load)), wait, left)


def _load(cluster: Cluster, class_weights: Floats, found: Capacity | None) -> Floats:
    """Arrival rate over the capacity of that second's pods, (n,); 0 without a capacity."""
    if found is None:
        return np.zeros(len(cluster.seconds.at))
    pod = np.full(len(cluster.seconds.at), found.rps / found.pods)
    if found.before is not None:
        pod[cluster.seconds.at < found.changed_at] = found.before.rps
    return cluster.rates @ class_weights / (pod * cluster.pods)


def _steady(at: Ints, u: Floats) -> Bools:
    """Seconds (n,) in steady state: neither in overload nor while its backlog is worked off."""
    over = u >= OVERLOAD
    if not over.any():
        return ~over
    gap = np.diff(at, prepend=at[:1])
    # Slightly more than was measured, for safety: seconds whose backlog is wrongly taken as worked
    # off have latencies of minutes.
    work = u + _EXCESS * np.maximum(u - 1, 0)
    piled = np.cumsum(work - np.maximum(gap, 1))  # seconds of work; absent seconds add no work
    backlog = piled - np.minimum.accumulate(np.minimum(piled, 0))
    last_over = np.maximum.accumulate(np.where(over, np.arange(len(u)), -1))
    last_empty = np.maximum.accumulate(np.where(backlog <= 0, np.arange(len(u)), -1))
    return ~over & (last_empty >= last_over)

"""Event-driven simulation of an application's queues in several clusters.

The module is native (lab/native), and `infra/local/setup` builds it. Services, endpoints, routes
and clusters are indices. Arrays are returned as the bytes of float64 in row-major order. A seed
determines everything that happens. Values that do not fit raise ValueError with the key.
"""

Call = tuple[int, int, int, float, int, bool]
"""(endpoint, route, count or -1, probability, request bytes, optional)"""
Cache = tuple[int, int, str, float, list[float]]
"""(variable, capacity, distribution, cv, mean seconds of a hit by cluster)"""
Rival = tuple[int, float, float]
"""(endpoint, rate that doubles the service time, time constant of the rate in seconds)"""
Endpoint = tuple[int, str, float, list[float], int, float, list[list[Call]], Cache | None, list[Rival]]
"""(service, distribution, cv, mean seconds by cluster, response bytes, error rate, stages, cache,
rivals)"""
Service = tuple[list[int], list[int], int, float]
"""(pods by cluster, workers of a pod by cluster, queue of a pod, its timeout in seconds)"""
Keys = list[tuple[int, list[float]]]
"""By cluster: (first key, cumulative weights of the keys from it on)"""

class Simulation:
    def __init__(
        self,
        *,
        clusters: int,
        services: list[Service],
        endpoints: list[Endpoint],
        routes: int,
        kinds: list[tuple[int, list[float]]],
        call_timeout_s: float,
        user_timeout_s: float,
        seed: int,
        keys: list[Keys] = ...,
    ) -> None:
        """`kinds`: (endpoint, share of each cluster's requests). `keys`: of every variable."""
    def set_load(self, load: list[list[tuple[float, float, float]]], poisson: bool) -> None:
        """Sets each cluster's load from now on: pieces of (seconds, first rate, last rate)."""
    def set_requests(self, requests: list[list[tuple[float, int]]]) -> None:
        """Sets each cluster's requests: (second, kind), in the order of time."""
    def set_round_trips(self, seconds: list[float]) -> None:
        """Sets the round trips of calls, [from, to]. Calls fail where it is infinite."""
    def set_weights(self, weights: list[float]) -> None:
        """Sets the weights of all routes, [route, from, to]. Calls without any weight fail."""
    def set_state(
        self,
        service: int,
        cluster: int,
        *,
        speed: float,
        error_rate: float,
        available: bool,
        delay_s: float,
        delay_share: float = 1.0,
    ) -> None:
        """Sets what the emulator's PATCH /state sets."""
    def set_workers(self, service: int, cluster: int, workers: int) -> None: ...
    def set_pods(self, service: int, cluster: int, pods: int) -> None: ...
    def run(self, until_s: float) -> None:
        """Runs until this second; infinite: until nothing is left to happen.

        The interpreter lock is released meanwhile.
        """
    @property
    def happened(self) -> int:
        """Number of events so far."""
    @property
    def in_progress(self) -> int:
        """Requests and calls that have not ended."""
    def busy_seconds(self) -> bytes:
        """Worker-seconds of work since the start, [service, cluster]."""
    def take_counts(self) -> list[tuple[str, bytes]]:
        """Returns what was counted since the last time.

        `arrived`, `served`, `failed`, `own_s`, `waited_s` and `hits`: [endpoint, cluster]. `calls`:
        [route, from, to]. `bytes` between clusters: [from, to].
        """
    def watch_outcomes(self) -> None:
        """Counts from now on how the calls of routes end, as their callers see it."""
    def take_outcomes(self) -> list[tuple[int, int, int, int, int, float]]:
        """Returns what was counted since the last time.

        Rows of route, from, to, bucket of latency, calls, and the seconds that they took. Bucket i
        has successful calls of up to 1.04^i microseconds; -1 are the failed ones.
        """
    def take_ended(self) -> tuple[bytes, bytes, bytes, bytes, bytes]:
        """Returns the users' requests that ended since the last time, in columns.

        Seconds of sending and latency in seconds (float64), success, cluster and kind (uint8).
        """

"""Simulated requests per second and core. `make bench-simulator`; the last line is JSON.

Each application is simulated alone, in one thread, at 70 % of its bottleneck's capacity in each of
two clusters. Seconds are processor seconds, medians of the runs.
"""

import argparse
import json
import statistics
import time

from spillway_lab.scenario.application import parse
from spillway_lab.scenario.loads import Segment
from spillway_lab.scenario.scenario import Document, Scenario
from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

_REQUESTS = 2_000_000
_UTILISATION = 0.7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    found = {}
    for hops in (1, 3, 6):
        seconds, events = zip(*(_once(hops, seed) for seed in range(runs)), strict=True)
        rates = [_REQUESTS / s for s in seconds]
        found[hops] = (
            statistics.median(rates),
            statistics.median(e / s for e, s in zip(events, seconds, strict=True)),
        )
        print(
            f"{hops} services in a chain: {found[hops][0]:12,.0f} requests/s "
            f"({min(rates):,.0f} to {max(rates):,.0f}), {found[hops][1]:,.0f} events/s",
            flush=True,
        )
    keys = {"requests_per_s": found[1][0], "events_per_s": found[1][1], "requests_per_s_6": found[6][0]}
    print(json.dumps({key: round(value) for key, value in keys.items()}))


def _once(hops: int, seed: int) -> tuple[float, int]:
    """Returns the processor seconds of a simulation, and how many events it had."""
    engine = Engine(World(Indices(_chain(hops))), seed)
    engine.set_weights(engine.indices.weights({}))
    rps = _UTILISATION * 4 / 0.01
    seconds = _REQUESTS / 2 / rps
    engine.load({c: [Segment(seconds, rps, rps)] for c in engine.indices.clusters}, poisson=True)
    began = time.process_time()
    engine.run(seconds + 100)
    return time.process_time() - began, engine.happened


def _chain(hops: int) -> Scenario:
    names = [f"hop-{n}" for n in range(hops)]

    def service(n: int) -> dict:
        calls = [[{"service": names[n + 1], "method": "GET", "path": "/"}]] if n + 1 < hops else []
        endpoint = {
            "method": "GET", "path": "/", "service_time": {"distribution": "exponential", "mean_ms": 10},
            "response_bytes": 1000, "calls": calls,
        }  # fmt: skip
        return {"workers": 4, "queue": 128, "queue_timeout_ms": 1000, "endpoints": [endpoint]}

    application = parse(
        "chain", {"call_timeout_ms": 5000, "services": {name: service(n) for n, name in enumerate(names)}}
    )
    document = Document.model_validate(
        {
            "application": "chain.yaml",
            "clusters": {"west": {"region": "west"}, "east": {"region": "east"}},
            "links": [
                {"source_cluster": "west", "destination_cluster": "east", "both_ways": True, "rtt_ms": 25,
                 "egress_usd_per_gb": 0.02}
            ],
            "placement": {name: {"west": {}, "east": {}} for name in names},
            "usd_per_ms_per_million_requests": 0.1,
            "requests": [{"service": names[0], "method": "GET", "path": "/"}],
            "load": {"measure": {"warm_up_seconds": 0, "measured_seconds": 1, "rps": {"west": 1}}},
            "policies": ["local"],
        }
    )  # fmt: skip
    return Scenario(name="chain", document=document, application=application)


if __name__ == "__main__":
    main()

"""The model that the optimizer plans with, from the true queues and the observed load. Pure.

The document has the format of contracts/golden/3_model.json. Its curves and capacities are those of
the simulated queues, which nobody knows in production: results with it are labelled `oracle`. They
do not know of a service's `delay_ms` in one cluster, since a class has one curve for all clusters.
The boards are what streams would observe (observed.py).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import numpy as np

from spillway_lab.scenario.application import Endpoint, Service
from spillway_lab.scenario.flows import Work
from spillway_lab.scenario.queues import curve, wait_ms
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.observed import BOARD_S
from spillway_lab.simulator.world import World

BEGAN = 1_767_225_600.0  # Unix seconds of a simulation's second 0
_UTILISATIONS = np.linspace(0.05, 0.95, 19)
_SAMPLES = 1000

Tables = dict[str, list[dict[str, Any]]]


def tables(world: World, misses: Mapping[str, float] = MappingProxyType({})) -> Tables:
    """Returns what is known of the world's queues: rows without their times.

    `misses`: by class, the share of requests that a cache does not have; without a share, all. Like
    a curve, it is one number for all clusters. Contention is not known: each class is as if alone
    (SLATE appendix C.3).
    """
    index = _with_hits(world.indices, misses)
    return {
        "curves": [
            _curve(index, name, service, endpoint)
            for name, service in index.application.services.items()
            for endpoint in service.endpoints
        ],
        "capacities": _capacities(index, world),
        "call_ratios": _ratios(index, misses),
    }


def document(known: Tables, boards: dict[str, Any], world: World, now_s: float) -> dict[str, Any]:
    """Returns the model at second `now_s`: what is known, the boards, and the pods of the world."""
    at = BEGAN + now_s
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    window = f"{int((at - BOARD_S) * 1000)}-{int(at * 1000)}"
    times = {"fitted_at": stamp, "measured_at": stamp, "window_end": stamp, "input_window": window}
    pods = {
        cluster: {s: world.pods[s, cluster] for s in world.indices.services if world.pods[s, cluster]}
        for cluster in world.indices.clusters
    }
    rows = {table: [row | times for row in found] for table, found in known.items()}
    return rows | boards | {"placement": pods}


def _with_hits(index: Indices, misses: Mapping[str, float]) -> Indices:
    """Returns the scenario with service times that are means over hits and misses."""
    if not misses:
        return index
    application = index.application
    services = {
        name: service.model_copy(
            update={"endpoints": [_mixed(e, misses.get(e.class_id(name), 1.0)) for e in service.endpoints]}
        )
        for name, service in application.services.items()
    }
    mixed = application.model_copy(update={"services": services})
    return Indices(index.scenario.model_copy(update={"application": mixed}))


def _mixed(endpoint: Endpoint, missed: float) -> Endpoint:
    hit_ms = endpoint.cache.hit.mean_ms if endpoint.cache and endpoint.cache.hit else 0.0
    mean_ms = missed * endpoint.service_time.mean_ms + (1 - missed) * hit_ms
    return endpoint.model_copy(
        update={"service_time": endpoint.service_time.model_copy(update={"mean_ms": mean_ms})}
    )


def _curve(index: Indices, name: str, service: Service, endpoint: Endpoint) -> dict[str, Any]:
    """Fits a / (1 - u) + b to the queue's mean times, relative to them.

    Classes of a service wait for the same workers, so they wait as long as its mix of classes says.
    Each pod is a queue of its own: several pods behind LEAST_REQUEST wait less than this says.
    """
    placed = [cluster for cluster in index.clusters if index.pods(name, cluster)]
    times = [_endpoint_ms(index, cluster, name, endpoint) for cluster in placed]
    workers = round(np.mean([index.scenario.application_of(c).services[name].workers for c in placed]))
    mean_ms, base = float(np.mean(times)), service.endpoints[0].service_time
    slower = mean_ms / endpoint.service_time.mean_ms
    mix = index.work.get(name, Work(base.mean_ms, base.cv2))
    y = mean_ms + wait_ms(workers, slower * mix.mean_ms, mix.cv2, _UTILISATIONS)
    a, b = curve(_UTILISATIONS, y, 1 / y)
    return {
        "service": name, "class": endpoint.class_id(name), "a_ms": a, "b_ms": b, "a_se_ms": 0.0,
        "b_se_ms": 0.0, "norm_weight": endpoint.service_time.mean_ms / base.mean_ms, "u_min": 0.05, "u_max": 0.95,
        "samples": _SAMPLES, "rmse_ms": 0.0, "phase": "retrain", "reason": "oracle: the simulated queue's own",
    }  # fmt: skip


def _endpoint_ms(index: Indices, cluster: str, name: str, endpoint: Endpoint) -> float:
    """Returns an endpoint's mean service time in one cluster, where its service may be slower."""
    number = index.application.services[name].endpoints.index(endpoint)
    return index.scenario.application_of(cluster).services[name].endpoints[number].service_time.mean_ms


def _capacities(index: Indices, world: World) -> list[dict[str, Any]]:
    found = []
    for (name, cluster), pods in world.pods.items():
        if pods:
            own = index.scenario.application_of(cluster).services[name].endpoints[0].service_time
            rps = pods * world.workers[name, cluster] * world.speed[name, cluster] / own.mean_ms * 1000
            row = {
                "cluster": cluster, "service": name, "capacity_rps": rps, "source": "cpu",
                "reason": "oracle: workers over mean service time", "pods": pods,
            }  # fmt: skip
            if (name, cluster) in world.settled:
                row["settled"] = world.settled[name, cluster]
            found.append(row)
    return found


def _ratios(index: Indices, misses: Mapping[str, float]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    sizes = {endpoint.class_id(name): endpoint.response_bytes for name, endpoint in index.endpoints()}
    for name, endpoint in index.endpoints():
        for call in (call for stage in endpoint.calls for call in stage):
            source, called = endpoint.class_id(name), call.class_id
            row = found.setdefault((source, called), {
                "source_class": source, "source_service": name, "class": called, "service": call.service,
                "calls_per_request": 0.0, "request_bytes": float(call.request_bytes),
                "response_bytes": float(sizes[called]), "samples": _SAMPLES, "probability": 1.0,
                "success_rate": 1.0,
            })  # fmt: skip
            row["calls_per_request"] += call.mean_count * misses.get(source, 1.0)
    return list(found.values())

"""The model that the optimizer plans with, from the true queues and the measured load. Pure.

The document has the format of contracts/golden/3_model.json. Its curves and capacities are those of
the simulated queues, which nobody knows in production: results with it are labelled `oracle`. Load,
demand and latencies are measured, as streams measures them.
"""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from spillway_lab.scenario.application import Endpoint, Service
from spillway_lab.scenario.flows import Work
from spillway_lab.scenario.queues import curve, wait_ms
from spillway_lab.simulator.engine import Counts
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

_BEGAN = 1_767_225_600.0  # Unix seconds of a simulation's second 0
_UTILISATIONS = np.linspace(0.05, 0.95, 19)
_SAMPLES = 1000


def document(world: World, counts: Counts, now_s: float) -> dict[str, Any]:
    """Returns the model at second `now_s`. `counts` are of the seconds before."""
    index, rtt_ms = world.indices, world.rtt_ms
    at = _BEGAN + now_s
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S.000")
    window = f"{int((at - counts.seconds) * 1000)}-{int(at * 1000)}"
    return {
        "curves": [_curve(index, name, service, endpoint) | {"fitted_at": stamp, "input_window": window}
                   for name, service in index.application.services.items() for endpoint in service.endpoints],
        "capacities": [row | {"measured_at": stamp, "input_window": window} for row in _capacities(world)],
        "call_ratios": [row | {"window_end": stamp, "input_window": window} for row in _ratios(index)],
        "network_times": [row | {"window_end": stamp} for row in _network(index, rtt_ms)],
        "load": _boards(index, counts, at, range(len(index.classes)), is_load=True),
        "demand": _boards(index, counts, at, _entries(index), is_load=False),
        "network": {
            f"{row['source_cluster']}>{row['destination_cluster']}": {
                "at": at, "mean_ms": row["mean_ms"], "samples": row["samples"],
            }
            for row in _network(index, rtt_ms)
        },
        "placement": {
            cluster: {s: world.pods[s, cluster] for s in index.services if world.pods[s, cluster]}
            for cluster in index.clusters
        },
    }  # fmt: skip


def _curve(index: Indices, name: str, service: Service, endpoint: Endpoint) -> dict[str, Any]:
    """Fits a / (1 - u) + b to the queue's mean times, relative to them.

    Classes of a service wait for the same workers, so they wait as long as its mix of classes says.
    """
    times = [
        _endpoint_ms(index, cluster, name, endpoint)
        for cluster in index.clusters
        if index.pods(name, cluster)
    ]
    mean_ms, base = float(np.mean(times)), service.endpoints[0].service_time
    slower = mean_ms / endpoint.service_time.mean_ms
    mix = index.work.get(name, Work(base.mean_ms, base.cv2))
    y = mean_ms + wait_ms(service.workers, slower * mix.mean_ms, mix.cv2, _UTILISATIONS)
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


def _capacities(world: World) -> list[dict[str, Any]]:
    found = []
    for (name, cluster), pods in world.pods.items():
        if pods:
            own = world.indices.scenario.application_of(cluster).services[name].endpoints[0].service_time
            rps = pods * world.workers[name, cluster] * world.speed[name, cluster] / own.mean_ms * 1000
            found.append({
                "cluster": cluster, "service": name, "capacity_rps": rps, "source": "cpu",
                "reason": "oracle: workers over mean service time", "pods": pods,
            })  # fmt: skip
    return found


def _ratios(index: Indices) -> list[dict[str, Any]]:
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
            row["calls_per_request"] += call.mean_count
    return list(found.values())


def _network(index: Indices, rtt_ms: np.ndarray) -> list[dict[str, Any]]:
    linked = {(link.source_cluster, link.destination_cluster) for link in index.scenario.links()}
    return [
        {"source_cluster": here, "destination_cluster": there, "mean_ms": float(rtt_ms[i, j]),
         "p50_ms": float(rtt_ms[i, j]), "p99_ms": float(rtt_ms[i, j]), "samples": _SAMPLES}
        for i, here in enumerate(index.clusters)
        for j, there in enumerate(index.clusters)
        if i == j or (here, there) in linked
    ]  # fmt: skip


def _entries(index: Indices) -> list[int]:
    entries = {request.class_id for request in index.scenario.document.requests}
    return [k for k, name in enumerate(index.classes) if name in entries]


def _boards(index: Indices, counts: Counts, at: float, classes: Any, is_load: bool) -> dict[str, Any]:
    """Returns every cluster's board: by class, the rates of the last seconds.

    There is no entry where nothing arrived.
    """
    found: dict[str, Any] = {}
    for c, cluster in enumerate(index.clusters):
        board = {}
        for k in classes:
            arrived, served = counts.arrived[k, c], counts.served[k, c]
            if not arrived:
                continue
            own_ms = 1000 * float(counts.own_s[k, c] / served) if served else 0.0
            entry: dict[str, Any] = {
                "at": at, "rps": float(arrived / counts.seconds),
                "failed_share": float(min(counts.failed[k, c] / arrived, 1.0)), "duration_ms": own_ms,
            }  # fmt: skip
            if is_load:
                entry |= {"exclusive_ms": own_ms, "in_flight": 0.0, "cpu": None}
            board[index.classes[k]] = entry
        found[cluster] = board
    return found

"""An application as the native simulation takes it: indices, and times in seconds. Pure."""

from typing import TYPE_CHECKING

from spillway_lab.scenario.application import Call, Endpoint
from spillway_lab.scenario.behaviour import Keys, ServiceTime
from spillway_lab.simulator.indices import Indices
from spillway_lab.simulator.world import World

if TYPE_CHECKING:  # the module has types in its .pyi file only
    import spillway_simulator as native

_MS = 1000.0
_ANY = Keys(first=1, count=99_999)  # of a variable without keys, as the load generator draws them


def services(world: World) -> "list[native.Service]":
    index = world.indices
    found: list[native.Service] = []
    for name in index.services:
        service = index.application.services[name]
        pods = [world.pods[name, cluster] for cluster in index.clusters]
        workers = [world.workers[name, cluster] for cluster in index.clusters]
        found.append((pods, workers, service.queue, service.queue_timeout_ms / _MS))
    return found


def kinds(index: Indices) -> list[tuple[int, list[float]]]:
    """Returns the kinds of the users' requests: endpoint, and share of each cluster's requests."""
    return [
        (index.classes.index(request.class_id), [request.share_in(cluster) for cluster in index.clusters])
        for request in index.scenario.document.requests
    ]


def keys(index: Indices) -> "list[native.Keys]":
    """Returns the keys of every variable of `index.variables`."""
    asked = [index.application.keys.get(variable, _ANY) for variable in index.variables]
    return [[(each.of(c).first, each.cumulative(c)) for c in index.clusters] for each in asked]


def endpoints(index: Indices) -> "list[native.Endpoint]":
    return [_endpoint(index, name, endpoint) for name, endpoint in index.endpoints()]


def _endpoint(index: Indices, name: str, endpoint: Endpoint) -> "native.Endpoint":
    number = index.application.services[name].endpoints.index(endpoint)
    in_clusters = [
        index.scenario.application_of(cluster).services[name].endpoints[number] for cluster in index.clusters
    ]
    rivals = [
        (index.classes.index(f"{name} {rival.endpoint}"), rival.doubles_at_rps, rival.window_ms / _MS)
        for rival in endpoint.contention
    ]
    return (
        index.services.index(name),
        endpoint.service_time.distribution,
        endpoint.service_time.cv or 0.0,
        [each.service_time.mean_ms / _MS for each in in_clusters],
        endpoint.response_bytes,
        endpoint.error_rate,
        [[_call(index, name, call) for call in stage] for stage in endpoint.calls],
        _cache(index, in_clusters),
        rivals,
    )


def _cache(index: Indices, in_clusters: list[Endpoint]) -> "native.Cache | None":
    """Returns the cache of an endpoint that is given as in every cluster, or None.

    Without `hit`, hits take no time.
    """
    caches = [each.cache for each in in_clusters if each.cache]
    if not caches:
        return None
    first, hits = caches[0], [cache.hit for cache in caches]
    shape = first.hit or ServiceTime(distribution="constant", mean_ms=1.0)
    seconds = [hit.mean_ms / _MS if hit else 0.0 for hit in hits]
    return index.variables.index(first.key), first.capacity, shape.distribution, shape.cv or 0.0, seconds


def _call(index: Indices, caller: str, call: Call) -> "native.Call":
    return (
        index.classes.index(call.class_id),
        index.routes.index((caller, call.class_id)),
        -1 if call.count is None else call.count,
        1.0 if call.probability is None else call.probability,
        call.request_bytes,
        call.optional,
    )

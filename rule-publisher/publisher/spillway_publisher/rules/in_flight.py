"""Calls in flight of one cluster: the sum of what its relays report. Pure."""

from collections import Counter
from collections.abc import Iterable

from spillway.v1.heartbeat_pb2 import CallsInFlight, Heartbeat

DESTINATIONS = 4096  # at most, with services, in one heartbeat
_UINT32 = 2**32 - 1


def size(heartbeat: Heartbeat) -> int:
    """Returns the number of services and destinations that the heartbeat has calls in flight of."""
    return sum(1 + len(source.destinations) for source in heartbeat.calls_in_flight)


def total(reports: Iterable[Iterable[CallsInFlight]]) -> list[CallsInFlight]:
    """Returns the sums over relays, sorted by service and destination.

    An Envoy reports to one relay, which need not be the relay that serves its routes.
    """
    envoys: Counter[str] = Counter()
    calls: Counter[tuple[str, str, str]] = Counter()
    for report in reports:
        for source in report:
            envoys[source.service] += source.reporting_envoys
            for to in source.destinations:
                calls[source.service, to.service, to.cluster] += to.calls
    found = {
        service: CallsInFlight(service=service, reporting_envoys=min(count, _UINT32))
        for service, count in sorted(envoys.items())
    }
    for (service, destination, cluster), count in sorted(calls.items()):
        found[service].destinations.add(service=destination, cluster=cluster, calls=min(count, _UINT32))
    return list(found.values())

"""What happens while a policy is measured: delays, faults, lost clusters, changed replicas.

Each event happens once in every round, and sets something until a later event sets it again.
Whatever was changed is as the file says when the next round begins.
"""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from spillway_lab.scenario.application import Model, Positive
from spillway_lab.scenario.places import Link, NotNegative, Placement

_KINDS = ("link", "service", "cluster", "replicas")


class LinkChange(Model):
    """The round trip between clusters, in ms: set, or raised above the scenario's own.

    Without a source, or without a destination, it is every link to, or from, the other one.
    `add_rtt_ms: 0` restores the scenario's delay.
    """

    source_cluster: str | None = None
    destination_cluster: str | None = None
    both_ways: bool = False
    rtt_ms: NotNegative | None = None
    add_rtt_ms: NotNegative | None = None

    @model_validator(mode="after")
    def _one_delay(self) -> "LinkChange":
        if (self.rtt_ms is None) == (self.add_rtt_ms is None):
            raise ValueError("rtt_ms, add_rtt_ms: allowed: exactly one of them")
        if self.source_cluster is None and self.destination_cluster is None:
            raise ValueError("source_cluster, destination_cluster: both missing; allowed: one or both")
        return self

    def changes(self, source: str, destination: str) -> bool:
        """Returns whether a directed link is meant."""
        return self._matches(source, destination) or (self.both_ways and self._matches(destination, source))

    def _matches(self, source: str, destination: str) -> bool:
        return self.source_cluster in (None, source) and self.destination_cluster in (None, destination)

    def after(self, link: Link) -> float:
        """Returns the round trip in ms of a link that is changed."""
        return link.rtt_ms + self.add_rtt_ms if self.add_rtt_ms is not None else self.rtt_ms or 0.0


class ServiceChange(Model):
    """The pods of a service in one cluster. Keys that are left out stay as they are.

    `speed` divides service times. `available: false` answers every request with 503 at once.
    `delay_ms` is added to a `delay_share` of the answers, at first to all, and needs no worker.
    """

    service: str
    cluster: str
    speed: Positive | None = None
    workers: Annotated[int, Field(ge=1)] | None = None
    error_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    available: bool | None = None
    delay_ms: NotNegative | None = None
    delay_share: Annotated[float, Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> "ServiceChange":
        if not self.state():
            allowed = "speed, workers, error_rate, available, delay_ms, delay_share"
            raise ValueError(f"changes nothing; allowed: at least one of {allowed}")
        return self

    def state(self) -> dict[str, float | bool]:
        """Returns what the pods' emulators are sent."""
        return self.model_dump(exclude_none=True, exclude={"service", "cluster"})


class ClusterChange(Model):
    """Whether a cluster reaches the others and is reached by them. Its own users still reach it."""

    cluster: str
    reachable: bool


class ReplicaChange(Model):
    """The number of a service's pods in one cluster, as an autoscaler would change it."""

    service: str
    cluster: str
    pods: Annotated[int, Field(ge=1)]


class Event(Model):
    """A change `at_seconds` after the measured part began, in scenario time: exactly one kind."""

    at_seconds: NotNegative
    link: LinkChange | None = None
    service: ServiceChange | None = None
    cluster: ClusterChange | None = None
    replicas: ReplicaChange | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> "Event":
        given = [kind for kind in _KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"{', '.join(given) or 'no kind'}; allowed: exactly one of {', '.join(_KINDS)}")
        return self


def problems(
    events: list[Event],
    seconds: float,
    clusters: list[str],
    links: list[Link],
    placement: dict[str, dict[str, Placement]],
) -> Iterator[str]:
    """Yields what does not fit to the scenario: times, clusters, links, and where services are."""
    for i, event in enumerate(events):
        if event.at_seconds >= seconds:
            yield f"events[{i}].at_seconds: {event.at_seconds:g}; allowed: less than the measured {seconds:g} s"
        if event.link is not None:
            yield from _link_problems(f"events[{i}].link", event.link, clusters, links)
        if event.cluster is not None and event.cluster.cluster not in clusters:
            yield _unknown(f"events[{i}].cluster.cluster", event.cluster.cluster, clusters)
        for kind in ("service", "replicas"):
            if change := getattr(event, kind):
                yield from _place_problems(f"events[{i}].{kind}", change, placement)


def _link_problems(key: str, change: LinkChange, clusters: list[str], links: list[Link]) -> Iterator[str]:
    ends = {"source_cluster": change.source_cluster, "destination_cluster": change.destination_cluster}
    unknown = {
        end: cluster for end, cluster in ends.items() if cluster is not None and cluster not in clusters
    }
    yield from (_unknown(f"{key}.{end}", cluster, clusters) for end, cluster in unknown.items())
    if not unknown and not any(change.changes(x.source_cluster, x.destination_cluster) for x in links):
        known = ", ".join(f"{x.source_cluster} to {x.destination_cluster}" for x in links)
        yield f"{key}: matches no link; links: {known or 'none'}"


def _place_problems(
    key: str, change: ServiceChange | ReplicaChange, placement: dict[str, dict[str, Placement]]
) -> Iterator[str]:
    if change.service not in placement:
        yield f"{key}.service: unknown service {change.service!r}; services: {', '.join(placement)}"
    elif change.cluster not in placement[change.service]:
        allowed = ", ".join(placement[change.service])
        yield f"{key}.cluster: {change.service!r} is not placed in {change.cluster!r}; allowed: {allowed}"


def _unknown(key: str, cluster: str, clusters: list[str]) -> str:
    return f"{key}: unknown cluster {cluster!r}; clusters: {', '.join(clusters)}"

"""Scenario YAML: clusters, network, placement, load, events and policies around one application.

The keys are described in lab/SCENARIOS.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, field_validator, model_validator
from spillway_contracts import ContractError, traffic_class

from spillway_lab.scenario import application as applications
from spillway_lab.scenario import autoscalers as scaling
from spillway_lab.scenario import events as happenings
from spillway_lab.scenario import flows, places, queues
from spillway_lab.scenario.application import Application, Model
from spillway_lab.scenario.autoscalers import Autoscaler
from spillway_lab.scenario.errors import InvalidInput, from_validation
from spillway_lab.scenario.events import Event
from spillway_lab.scenario.loads import Load, Rates
from spillway_lab.scenario.places import Cluster, Link, Matrix, NotNegative, Placement, Request
from spillway_lab.scenario.stretch import stretched
from spillway_lab.scenario.variants import Policy

__all__ = ["Cluster", "Document", "Link", "NotNegative", "Request", "Scenario", "load"]


class Document(Model):
    """The content of a scenario file."""

    application: Path  # relative to the scenario file
    question: str = ""  # what the scenario answers, for reports
    clusters: Annotated[dict[str, Cluster], Field(min_length=1)]
    links: list[Link] = Field(default_factory=list)
    rtt_ms: Matrix = Field(default_factory=dict)  # beside links, for more than two clusters
    egress_usd_per_gb: NotNegative | Matrix | None = None  # prices of the links in rtt_ms
    placement: Annotated[dict[str, dict[str, Placement]], Field(min_length=1)]
    usd_per_ms_per_million_requests: NotNegative
    requests: Annotated[list[Request], Field(min_length=1)]
    load: Load
    events: list[Event] = Field(default_factory=list)
    autoscalers: dict[str, Autoscaler] = Field(default_factory=dict)  # by service
    policies: Annotated[list[Policy], Field(min_length=1)]
    repetitions: Annotated[int, Field(ge=1, le=100)] = 3  # rounds of each policy
    time_scale: Annotated[float, Field(ge=0.1, le=100)] = 1.0  # see stretch; of live runs

    @field_validator("policies")
    @classmethod
    def _distinct(cls, policies: list[Policy]) -> list[Policy]:
        if len(set(policies)) != len(policies):
            raise ValueError(f"{policies}: a policy is listed twice; allowed: each once")
        return policies

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> "Document":
        # Links can only be listed, and events compared with them, once the matrices are sound.
        checks = (self._unknown_clusters, self._network_problems, self._event_problems, self._share_problems)
        for check in checks:
            if problems := list(check()):
                raise ValueError("; ".join(problems))
        return self

    def directed_links(self) -> list[Link]:
        return places.directed(self.links, self.rtt_ms, self.egress_usd_per_gb or 0.0)

    def shares(self) -> list[float]:
        """Returns each request's part of all users' requests at the start of the measured part."""
        load = self.load.measure.first_rps
        if not any(load.values()):
            load = dict.fromkeys(self.clusters, 1.0)
        total = {c: sum(request.share_in(c) for request in self.requests) for c in load}
        return [
            sum(rps * request.share_in(c) / total[c] for c, rps in load.items() if rps)
            for request in self.requests
        ]

    def rates(self) -> Iterator[tuple[str, Rates]]:
        """Yields every set of rates with its key, for error texts."""
        for i, step in enumerate(self.load.profile):
            yield f"load.profile[{i}].rps", step.rps
        for key, rps in self.load.measure.named_rates():
            yield f"load.measure.{key}", rps

    def _network_problems(self) -> Iterator[str]:
        clusters = list(self.clusters)
        return places.network_problems(clusters, self.links, self.rtt_ms, self.egress_usd_per_gb)

    def _event_problems(self) -> Iterator[str]:
        seconds, links = self.load.measure.seconds, self.directed_links()
        yield from happenings.problems(self.events, seconds, list(self.clusters), links, self.placement)
        yield from scaling.problems(self.autoscalers, self.placement, self.events)

    def _share_problems(self) -> Iterator[str]:
        for cluster in self.clusters:
            if not any(request.share_in(cluster) for request in self.requests):
                yield f"requests.share_by_cluster.{cluster}: all 0; allowed: at least one above 0"

    def _unknown_clusters(self) -> Iterator[str]:
        allowed = ", ".join(self.clusters)
        named = [(f"links[{i}].source_cluster", link.source_cluster) for i, link in enumerate(self.links)]
        named += [
            (f"links[{i}].destination_cluster", link.destination_cluster) for i, link in enumerate(self.links)
        ]
        named += [
            (f"placement.{service}", cluster) for service, at in self.placement.items() for cluster in at
        ]
        named += [(key, cluster) for key, rps in self.rates() for cluster in rps]
        named += [
            (f"requests[{i}].share_by_cluster", cluster)
            for i, request in enumerate(self.requests)
            for cluster in request.share_by_cluster
        ]
        for key, cluster in named:
            if cluster not in self.clusters:
                yield f"{key}: unknown cluster {cluster!r}; clusters: {allowed}"


class Scenario(Model):
    """A checked scenario with its application."""

    name: str
    document: Document
    application: Application

    @property
    def clusters(self) -> list[str]:
        """Cluster names in the file's order. A cluster's index is its position in this list."""
        return list(self.document.clusters)

    def application_of(self, cluster: str) -> Application:
        return applications.overridden(self.application, self.document.clusters[cluster].services)

    def links(self) -> list[Link]:
        """Directed links. A link with `both_ways` gives two."""
        return self.document.directed_links()

    def threshold_rps(self, service: str, cluster: str) -> float:
        """Returns Waterfall's static threshold of a service in a cluster.

        Without one in the file it is that of a careful operator: where the knee of a pod's latency
        begins, for the scenario's own mix of requests, times the number of pods. It is 0, so not
        declared, for a service that gets no requests.
        """
        placed = self.document.placement[service][cluster]
        if placed.threshold_rps is not None:
            return placed.threshold_rps
        application = self.application_of(cluster)
        by_class = flows.rates(application, self.document.requests, self.document.shares())
        work = flows.work(application, service, by_class)
        if work is None:
            return 0.0
        workers = application.services[service].workers
        at_knee = queues.knee(workers, work.cv2) * workers / work.mean_ms * 1000
        return round(placed.pods * at_knee, 3)

    def live(self) -> "Scenario":
        """Returns the scenario as a live run has it: stretched, and its time scale is 1."""
        slow = stretched(self, self.document.time_scale)
        return slow.model_copy(update={"document": slow.document.model_copy(update={"time_scale": 1.0})})


def load(path: Path) -> Scenario:
    """Reads a scenario and its application.

    Raises InvalidInput that lists every problem with its file and key.
    """
    raw = applications.read_yaml(path)
    try:
        document = Document.model_validate(raw)
    except ValidationError as error:
        raise from_validation(path, error) from error
    application = applications.load(path.parent / document.application)
    if problems := list(_disagreements(document, application)):
        raise InvalidInput([f"{path}: {problem}" for problem in problems])
    return Scenario(name=path.stem, document=document, application=application)


def _disagreements(document: Document, application: Application) -> Iterator[str]:
    """Yields a problem for each statement about a service that does not match the application."""
    allowed = ", ".join(application.services)
    named = [(f"placement.{service}", service) for service in document.placement]
    named += [(f"requests[{i}].service", request.service) for i, request in enumerate(document.requests)]
    for cluster, settings in document.clusters.items():
        named += [(f"clusters.{cluster}.services.{service}", service) for service in settings.services]
    for key, service in named:
        if service not in application.services:
            yield f"{key}: unknown service {service!r}; services: {allowed}"
    for service in application.services:
        if not document.placement.get(service):
            clusters = ", ".join(document.clusters)
            yield f"placement.{service}: placed nowhere; allowed: at least one of {clusters}"
    yield from _entry_problems(document, application)


def _entry_problems(document: Document, application: Application) -> Iterator[str]:
    for i, request in enumerate(document.requests):
        try:
            traffic_class.parse(request.class_id)
        except ContractError as error:
            yield f"requests[{i}]: {error}"
        service = application.services.get(request.service)
        served = [str(endpoint) for endpoint in service.endpoints] if service else []
        if service and f"{request.method} {request.path}" not in served:
            yield (
                f"requests[{i}]: {request.method} {request.path} is not an endpoint of {request.service!r}; "
                f"endpoints: {', '.join(served)}"
            )
        for key, rates in document.rates():
            for cluster, rate in rates.items():
                if rate > 0 and cluster not in document.placement.get(request.service, {}):
                    yield f"{key}.{cluster}: {rate}; {request.service!r} is not placed there; allowed: 0"

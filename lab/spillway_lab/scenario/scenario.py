"""Scenario YAML: clusters, links, placement, load and policies around one application."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from spillway_contracts import ContractError, traffic_class

from spillway_lab.scenario import application as applications
from spillway_lab.scenario.application import Application, Model, Override, Positive
from spillway_lab.scenario.errors import InvalidInput, from_validation

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Policy = Literal["local", "failover", "waterfall", "spillway"]


class Cluster(Model):
    region: str
    # settings of services that differ in this cluster
    services: dict[str, Override] = Field(default_factory=dict)


class Link(Model):
    source_cluster: str
    destination_cluster: str
    both_ways: bool = False
    rtt_ms: NotNegative
    egress_usd_per_gb: NotNegative


class Placement(Model):
    pods: Annotated[int, Field(ge=1)] = 1
    # threshold of the Waterfall policy, for all the cluster's pods together
    threshold_rps: NotNegative = 0


class Request(Model):
    """One kind of request that users send, and its share of all requests."""

    service: str
    method: str
    path: str
    request_bytes: Annotated[int, Field(ge=0)] = 0
    share: Positive = 1.0


class Step(Model):
    seconds: Annotated[int, Field(ge=1)]
    rps: dict[str, NotNegative]


class Measure(Model):
    warm_up_seconds: Annotated[int, Field(ge=0)]
    measured_seconds: Annotated[int, Field(ge=1)]
    rps: dict[str, NotNegative]


class Load(Model):
    profile: list[Step] = Field(default_factory=list)
    measure: Measure


class Document(Model):
    """The content of a scenario file."""

    application: Path  # relative to the scenario file
    clusters: Annotated[dict[str, Cluster], Field(min_length=1)]
    links: list[Link] = Field(default_factory=list)
    placement: Annotated[dict[str, dict[str, Placement]], Field(min_length=1)]
    usd_per_ms_per_million_requests: NotNegative
    requests: Annotated[list[Request], Field(min_length=1)]
    load: Load
    policies: Annotated[list[Policy], Field(min_length=1)]

    @field_validator("policies")
    @classmethod
    def _distinct(cls, policies: list[Policy]) -> list[Policy]:
        if len(set(policies)) != len(policies):
            raise ValueError(f"{policies}: a policy is listed twice; allowed: each once")
        return policies

    @model_validator(mode="after")
    def _refers_to_known_clusters(self) -> "Document":
        if problems := list(_unknown_clusters(self)):
            raise ValueError("; ".join(problems))
        return self


def _unknown_clusters(document: Document) -> Iterator[str]:
    allowed = ", ".join(document.clusters)
    named = [(f"links[{i}].source_cluster", link.source_cluster) for i, link in enumerate(document.links)]
    named += [
        (f"links[{i}].destination_cluster", link.destination_cluster) for i, link in enumerate(document.links)
    ]
    named += [
        (f"placement.{service}", cluster) for service, at in document.placement.items() for cluster in at
    ]
    named += [
        (f"load.profile[{i}].rps", cluster)
        for i, step in enumerate(document.load.profile)
        for cluster in step.rps
    ]
    named += [("load.measure.rps", cluster) for cluster in document.load.measure.rps]
    for key, cluster in named:
        if cluster not in document.clusters:
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
        directed = []
        for link in self.document.links:
            directed.append(link)
            if link.both_ways:
                back = {
                    "source_cluster": link.destination_cluster,
                    "destination_cluster": link.source_cluster,
                }
                directed.append(link.model_copy(update=back))
        return directed


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
    loads = [("load.measure.rps", document.load.measure.rps)]
    loads += [(f"load.profile[{i}].rps", step.rps) for i, step in enumerate(document.load.profile)]
    for i, request in enumerate(document.requests):
        try:
            traffic_class.parse(f"{request.service} {request.method} {request.path}")
        except ContractError as error:
            yield f"requests[{i}]: {error}"
        service = application.services.get(request.service)
        served = [f"{endpoint.method} {endpoint.path}" for endpoint in service.endpoints] if service else []
        if service and f"{request.method} {request.path}" not in served:
            yield (
                f"requests[{i}]: {request.method} {request.path} is not an endpoint of {request.service!r}; "
                f"endpoints: {', '.join(served)}"
            )
        for key, rates in loads:
            for cluster, rate in rates.items():
                if rate > 0 and cluster not in document.placement.get(request.service, {}):
                    yield f"{key}.{cluster}: {rate}; {request.service!r} is not placed there; allowed: 0"

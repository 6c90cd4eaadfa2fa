"""Autoscalers of services: how many pods a service has while a policy is measured.

Each is that of one service. The pods of the placement are those that a round begins with.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from spillway_lab.scenario.application import Model, Positive
from spillway_lab.scenario.events import Event
from spillway_lab.scenario.places import NotNegative, Placement


class Autoscaler(Model):
    """A HorizontalPodAutoscaler on CPU utilisation. The defaults are those of Kubernetes.

    `clusters`: where pods change; empty: wherever the service is placed. `start_seconds`: from the
    decision to add a pod until it is ready. With `declared`, the topology has the autoscaler, so
    the optimizer knows of it.
    """

    target_utilisation: Annotated[float, Field(gt=0, le=1)]  # of a pod's workers
    min_pods: Annotated[int, Field(ge=1)] = 1
    max_pods: Annotated[int, Field(ge=1)]
    period_seconds: Positive = 15.0
    tolerance: NotNegative = 0.1
    stabilisation_seconds: NotNegative = 300.0
    start_seconds: NotNegative = 30.0
    declared: bool = True
    clusters: list[str] = Field(default_factory=list)

    def acts_in(self, cluster: str) -> bool:
        return not self.clusters or cluster in self.clusters


def problems(
    autoscalers: Mapping[str, Autoscaler],
    placement: Mapping[str, Mapping[str, Placement]],
    events: list[Event],
) -> Iterator[str]:
    """Yields what does not fit to the scenario: services, their pods, and events that set pods."""
    for service, autoscaler in autoscalers.items():
        key = f"autoscalers.{service}"
        if service not in placement:
            yield f"{key}: unknown service {service!r}; services: {', '.join(placement)}"
            continue
        least, most = autoscaler.min_pods, autoscaler.max_pods
        if least > most:
            yield f"{key}.min_pods: {least}; allowed: at most max_pods, {most}"
        for cluster in autoscaler.clusters:
            if cluster not in placement[service]:
                allowed = ", ".join(placement[service])
                yield f"{key}.clusters: {service!r} is not placed in {cluster!r}; allowed: {allowed}"
        for cluster, placed in placement[service].items():
            if autoscaler.acts_in(cluster) and not least <= placed.pods <= most:
                yield f"placement.{service}.{cluster}.pods: {placed.pods}; allowed by {key}: {least} to {most}"
    for i, event in enumerate(events):
        if event.replicas is not None and event.replicas.service in autoscalers:
            service = event.replicas.service
            if autoscalers[service].acts_in(event.replicas.cluster):
                yield f"events[{i}].replicas: an autoscaler sets the pods of {service!r}; allowed: another service"

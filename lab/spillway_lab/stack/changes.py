"""A scenario's events on a running stack: delays, faults of services, lost clusters, replicas.

Everything is changed from outside of Spillway: at Toxiproxy, at the emulators, and in the files of
endpoints that the relays follow.
"""

import json
from collections.abc import Mapping

import httpx
import yaml

from spillway_lab.render import files, pods, render
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.events import Event, LinkChange, ServiceChange
from spillway_lab.scenario.places import Link
from spillway_lab.stack import balancing, local_http
from spillway_lab.stack.stack import LabStack
from spillway_lab.stack.wan import Wan, WanLink, load_plan

_WAN = "wan.json"


class Changes:
    """What a scenario's events have changed in one running stack."""

    def __init__(self, running: LabStack) -> None:
        self._running = running
        self._base = load_plan(running.run / _WAN)
        self._rtt_ms: dict[tuple[str, str], float] = {}  # of changed links
        self._lost: set[str] = set()  # clusters that are cut off
        self._replicas: dict[tuple[str, str], int] = {}  # changed pods by service and cluster
        self._states: dict[Pod, dict] = {}  # states from before the first change
        self._wan = Wan(f"{HOST}:{running.port('toxiproxy')}", self._base)

    def apply(self, event: Event) -> str:
        """Makes the event happen, and returns what it did. Raises LabError if it cannot."""
        if event.link is not None:
            self._rtt_ms |= changed_links(event.link, self._running.scenario.links())
            self._network()
        if event.cluster is not None:
            (self._lost.discard if event.cluster.reachable else self._lost.add)(event.cluster.cluster)
            self._network()
        if event.service is not None:
            self._service(event.service)
        if event.replicas is not None:
            self._replicas[event.replicas.service, event.replicas.cluster] = event.replicas.pods
            self._endpoints()
        return event.model_dump_json(exclude_none=True, exclude_defaults=True)

    def restore(self) -> None:
        """Brings everything back to the scenario's file. Does nothing if nothing was changed."""
        if self._rtt_ms or self._lost:
            self._rtt_ms, self._lost = {}, set()
            self._network()
        for pod, state in self._states.items():
            _patch(pod, state)
        self._states = {}
        if self._replicas:
            self._replicas = {}
            self._endpoints()

    def _network(self) -> None:
        plan = planned(self._base, self._rtt_ms, self._lost)
        # The keeper would otherwise put back the delays that it knows.
        files.replace(self._running.run / _WAN, json.dumps([link.model_dump() for link in plan], indent=2))
        self._wan.plan(plan)
        self._wan.apply()

    def _service(self, change: ServiceChange) -> None:
        for pod in self._running.plan.pods:
            if (pod.service, pod.cluster) == (change.service, change.cluster):
                self._states.setdefault(pod, _state(pod))
                _patch(pod, change.state())

    def _endpoints(self) -> None:
        plan = self._running.plan
        active = pods.placed(self._running.scenario) | self._replicas
        scenario, run = self._running.scenario, self._running.run
        documents = {c: render.endpoints(plan, c, active=active) for c in scenario.clusters}
        for cluster, document in documents.items():
            files.replace(run / f"endpoints-{cluster}.yaml", yaml.safe_dump(document, sort_keys=False))
        balancing.set_endpoints(run, scenario, balancing.callers(scenario, plan.pods), documents)


def changed_links(change: LinkChange, links: list[Link]) -> dict[tuple[str, str], float]:
    """Returns the new round trips in ms of the directed links that a change means."""
    return {
        (link.source_cluster, link.destination_cluster): change.after(link)
        for link in links
        if change.changes(link.source_cluster, link.destination_cluster)
    }


def planned(base: list[WanLink], rtt_ms: Mapping[tuple[str, str], float], lost: set[str]) -> list[WanLink]:
    """Returns the plan with changed round trips, and without connections of lost clusters."""
    return [
        link.model_copy(
            update={
                "rtt_ms": rtt_ms.get((link.source_cluster, link.destination_cluster), link.rtt_ms),
                "enabled": lost.isdisjoint((link.source_cluster, link.destination_cluster)),
            }
        )
        for link in base
    ]


def _state(pod: Pod) -> dict:
    try:
        return local_http.get(_url(pod)).json()
    except (httpx.HTTPError, ValueError) as error:
        raise LabError(f"{pod.name}: its state cannot be read: {error}") from error


def _patch(pod: Pod, state: dict) -> None:
    try:
        answer = httpx.patch(_url(pod), json=state, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        raise LabError(f"{pod.name}: its state cannot be changed: {error}") from error
    if answer.is_error:
        raise LabError(f"{pod.name}: refused {state}: {answer.text.strip()}")


def _url(pod: Pod) -> str:
    return f"http://{HOST}:{pod.health_port}/state"

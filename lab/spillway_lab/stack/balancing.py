"""Hands the choice of clusters from the relays to the pods' Envoys and back, in a running stack.

Only scenarios with the policy `envoy-load-aware` have Envoys that can take it over
(`render.outbound`). The Envoys keep running: each reads its outbound routes again from a file.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml
from spillway_contracts import names

from spillway_lab.render import files, load_aware, outbound
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.render.render import called_places
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.stack import envoys, local_http

_WAIT_S = 30.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Caller:
    """A pod that calls other services."""

    pod: Pod
    services: tuple[str, ...]  # that it calls

    @property
    def file(self) -> str:
        """File of its Envoy's outbound routes, in the run folder."""
        return f"envoy/{self.pod.name}/{outbound.FILE}"


def callers(scenario: Scenario, pods: Iterable[Pod]) -> list[Caller]:
    """Returns the pods whose Envoys can take over; none in a scenario without the policy."""
    if load_aware.NAME not in scenario.document.policies:
        return []
    found = [Caller(pod, tuple(load_aware.called_by(scenario.application, pod.service))) for pod in pods]
    return [caller for caller in found if caller.services]


def to_envoys(
    run: Path, callers: list[Caller], routes_of: Callable[[Pod], dict | None] = envoys.outbound_routes
) -> None:
    """Lets the Envoys balance, on the matches, limits and retries of their relays' routes.

    `run` is the run folder. `routes_of` returns the routes of a pod's relay. Routes that relays
    send later take effect when the relays have the choice again. Raises LabError when an Envoy has
    no routes of its relay, or does not take over.
    """
    contents = {}
    for caller in callers:
        routes = routes_of(caller.pod)
        if routes is None:
            raise LabError(f"{caller.pod.name}: its Envoy has no outbound routes of its relay yet")
        contents[caller.file] = outbound.by_envoy(routes, caller.services)
    _put_into_force(run, callers, contents, by_envoy=True)


def to_relays(run: Path, callers: list[Caller]) -> None:
    """Puts the relays' routes into force again.

    Raises LabError when an Envoy does not take them.
    """
    _put_into_force(run, callers, {caller.file: outbound.by_relay() for caller in callers}, by_envoy=False)


def set_endpoints(
    run: Path, scenario: Scenario, callers: list[Caller], documents: Mapping[str, dict]
) -> None:
    """Gives the Envoys new endpoints, by source cluster, as their relays get them.

    Relays do not know these Envoy clusters. Code that changes endpoints must call this too.
    """
    contents = {}
    for caller in callers:
        places = called_places(scenario, caller.pod, documents[caller.pod.cluster])
        content = load_aware.assignments(places, caller.pod.cluster)
        contents[f"envoy/{caller.pod.name}/{load_aware.ENDPOINTS_FILE}"] = yaml.safe_dump(
            content, sort_keys=False
        )
    files.write(run, contents)


def is_by_envoy(pod: Pod) -> bool:
    """Whether a pod's Envoy balances between clusters by itself now.

    Raises LabError when its admin page cannot be read.
    """
    url = f"http://{HOST}:{pod.admin_port}/config_dump?resource=dynamic_scoped_route_configs"
    try:
        groups = local_http.get(url).json().get("configs", [])
    except httpx.HTTPError as error:
        raise LabError(f"{pod.name}: Envoy's admin page at port {pod.admin_port}: {error}") from error
    return any(
        scope["name"] == outbound.IN_FORCE and "route_configuration_name" not in scope
        for group in groups
        if group["name"] == names.XDS_OUTBOUND_ROUTE
        for scope in group.get("scoped_route_configs", [])
    )


def _put_into_force(run: Path, callers: list[Caller], contents: dict[str, dict], by_envoy: bool) -> None:
    files.write(run, {name: yaml.safe_dump(content, sort_keys=False) for name, content in contents.items()})
    deadline, left = time.monotonic() + _WAIT_S, callers
    while left := [caller for caller in left if is_by_envoy(caller.pod) != by_envoy]:
        if time.monotonic() > deadline:
            raise LabError(
                f"{', '.join(caller.pod.name for caller in left)}: Envoy did not take the new outbound "
                f"routes within {_WAIT_S:.0f} s; its log says why"
            )
        time.sleep(_POLL_S)

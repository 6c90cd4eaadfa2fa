"""Envoy's own policy in real Envoys: it moves requests under overload, and can be switched."""

import json
from collections.abc import Iterator
from pathlib import Path

import envoy_only_lab
import httpx
import pytest
from envoy_only_lab import RESPONSE_BYTES, Lab
from spillway_lab.render.pods import HOST, Pod
from spillway_lab.render.render import endpoints
from spillway_lab.scenario.errors import LabError
from spillway_lab.stack import balancing, egress
from spillway_lab.testing.servers import ROOT
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component

GOLDEN = json.loads((ROOT / "contracts/golden/6_envoy_routes.json").read_text())


@pytest.fixture
def running_lab(tmp_path: Path) -> Iterator[Lab]:
    with envoy_only_lab.running_lab(tmp_path) as found:
        yield found


def routes_of_relay(pod: Pod) -> dict:
    """The routes that the relay sends to this pod's Envoy, from its golden file."""
    return GOLDEN["services"][pod.service]["outbound"]


def test_requests_leave_an_overloaded_cluster_only(running_lab: Lab) -> None:
    """Under equal load requests stay, but for the probes, and under overload many leave.

    Overload here is one and a half times what the pod can serve, while the other cluster is idle.
    """
    balancing.to_envoys(running_lab.run, running_lab.callers, routes_of_relay)
    seen: list[float] = []

    def share(rps: float, beside_rps: float = 0) -> float:
        seen.append(running_lab.remote_share(rps, beside_rps))
        return seen[-1]

    eventually(lambda: share(10, beside_rps=10) < 0.15, "equal load stays", seen=lambda: seen)
    assert running_lab.stat("local_preferred_total") > 0
    seen.clear()
    eventually(lambda: 0.3 < share(30) < 0.9, "overload leaves", seen=lambda: seen)
    assert running_lab.stat("spill_active_total") > 0


def test_bytes_to_the_other_cluster_are_counted(running_lab: Lab) -> None:
    """Egress is the bytes of the requests that left the cluster and of their answers.

    The caller's Envoy counts them by the cluster of the endpoint. The bytes of both clusters are
    those on its connections. Probes alone would be too few, so the pod of the caller's cluster is
    overloaded.
    """
    balancing.to_envoys(running_lab.run, running_lab.callers, routes_of_relay)
    caller = running_lab.pod("frontend", "west")
    remote = running_lab.pod("backend", "east")

    def served() -> int:
        return httpx.get(f"http://{HOST}:{remote.health_port}/counts").json()["served"]

    eventually(lambda: running_lab.remote_share(30) > 0.3, "overload leaves")
    counted = egress.read([caller])
    assert set(counted) == {("west", "east"), ("east", "west")}
    # An answer has a kilobyte of headers at most. Refusals have no body.
    assert RESPONSE_BYTES * served() <= counted["east", "west"] < (RESPONSE_BYTES + 1000) * 1.5 * served()
    assert 0 < counted["west", "east"] < 1500 * 1.5 * served()
    stats = running_lab.stats("(lab_wire|load-aware/backend.upstream_cx_).*[tr]x_bytes_total")
    for way in ("tx", "rx"):
        on_connections = stats.pop(f"cluster.load-aware/backend.upstream_cx_{way}_bytes_total")
        assert on_connections == sum(n for name, n in stats.items() if f".{way}_" in name)


def test_routes_are_handed_over_and_back(running_lab: Lab) -> None:
    """Envoy takes the routes without a restart, and gives them back.

    Without a relay, its routes answer nothing, and there are no routes to start from.
    """
    caller = running_lab.pod("frontend", "west")
    url = f"http://{HOST}:{caller.inbound_port}/x"
    with pytest.raises(LabError, match="west-frontend-0: its Envoy has no outbound routes of its relay yet"):
        balancing.to_envoys(running_lab.run, running_lab.callers)
    assert httpx.get(url).status_code == 502
    for _ in range(2):
        balancing.to_envoys(running_lab.run, running_lab.callers, routes_of_relay)
        assert httpx.get(url).status_code == 200
        balancing.to_relays(running_lab.run, running_lab.callers)
        assert httpx.get(url).status_code == 502


def test_endpoints_follow_a_change(running_lab: Lab) -> None:
    """Without a restart, Envoy sends everything to the clusters that still have endpoints."""
    run, callers = running_lab.run, running_lab.callers
    balancing.to_envoys(run, callers, routes_of_relay)
    document = endpoints(running_lab.layout, "west")
    document["services"] = [row for row in document["services"] if row["cluster"] == "east"]
    balancing.set_endpoints(run, running_lab.scenario, callers, {"west": document})
    url = f"http://{HOST}:{running_lab.pod('frontend', 'west').inbound_port}/x"
    eventually(lambda: "backend@east" in httpx.get(url).headers["x-lab-path"], "the new endpoints are used")
    paths = {httpx.get(url).headers["x-lab-path"] for _ in range(20)}
    assert paths == {"frontend@west,backend@east"}

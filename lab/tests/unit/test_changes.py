"""Events on a running stack: what they come to in the WAN's plan and in the endpoints."""

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from spillway_lab.render import pods, render
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import LabError
from spillway_lab.scenario.events import Event, LinkChange
from spillway_lab.stack import changes
from spillway_lab.stack.wan import WanLink, repairs

SHIPPED = Path(__file__).resolve().parents[2] / "scenarios/two-clusters.yaml"


def link(source: str, destination: str, rtt_ms: float = 25) -> WanLink:
    return WanLink(
        name=f"{source}-to-{destination}",
        listen="127.0.0.1:1",
        upstream="127.0.0.1:2",
        source_cluster=source,
        destination_cluster=destination,
        rtt_ms=rtt_ms,
    )


def present(*links: WanLink) -> dict:
    return {x.name: x.proxy() | {"toxics": list(x.toxics().values())} for x in links}


BASE = [link("a", "b"), link("b", "a"), link("b", "c")]


def test_a_lost_cluster_has_no_open_connection() -> None:
    """Every way to and from it is closed, others stay open, and the delays stay as they are."""
    plan = changes.planned(BASE, {}, {"a"})
    assert [x.enabled for x in plan] == [False, False, True]
    assert [x.rtt_ms for x in plan] == [25, 25, 25]
    closing = repairs(plan, present(*BASE))
    assert [(method, path, body["enabled"]) for method, path, body in closing] == [
        ("POST", "/proxies/a-to-b", False),
        ("POST", "/proxies/b-to-a", False),
    ]
    assert [body["enabled"] for _, _, body in repairs(BASE, present(*plan))] == [True, True]


def test_a_delay_that_is_gone_is_removed() -> None:
    """A round trip of 0 has no toxic, so ours are deleted. Those of others stay."""
    found = present(link("a", "b", 25))
    found["a-to-b"]["toxics"].append({"name": "exports", "attributes": {}, "toxicity": 1})
    gone = repairs([link("a", "b", 0)], found)
    assert [(method, path) for method, path, _ in gone] == [
        ("DELETE", "/proxies/a-to-b/toxics/wan-upstream"),
        ("DELETE", "/proxies/a-to-b/toxics/wan-downstream"),
    ]


def test_a_changed_link_replaces_only_its_round_trip() -> None:
    """An added delay counts from the scenario's, and other links keep theirs."""
    links = scenario.load(SHIPPED).links()
    change = LinkChange(source_cluster="west", destination_cluster="east", add_rtt_ms=150)
    found = changes.changed_links(change, links)
    assert found == {("west", "east"): links[0].rtt_ms + 150}
    assert [
        x.rtt_ms for x in changes.planned([link("west", "east"), link("east", "west")], found, set())
    ] == [
        links[0].rtt_ms + 150,
        25,
    ]


def test_added_replicas_have_ports_but_no_requests_before_their_event(tmp_path: Path) -> None:
    """Pods that an event adds are planned from the start, and in the endpoints once they count."""
    content = yaml.safe_load(SHIPPED.read_text())
    content["application"] = str((SHIPPED.parent / content["application"]).resolve())
    replicas = {"service": "backend", "cluster": "west", "pods": 3}
    content["events"] = [{"at_seconds": 1, "replicas": replicas}]
    path = tmp_path / "more.yaml"
    path.write_text(yaml.safe_dump(content))
    more = scenario.load(path)
    layout = pods.plan(more, 20_000)
    assert sum((pod.service, pod.cluster) == ("backend", "west") for pod in layout.pods) == 3

    def addresses(cluster: str, active: dict | None) -> int:
        rows = render.endpoints(layout, cluster, active=active)["services"]
        [row] = [row for row in rows if (row["service"], row["cluster"]) == ("backend", "west")]
        return len(row["addresses"])

    for cluster in ("west", "east"):
        assert addresses(cluster, pods.placed(more)) == 1
        assert addresses(cluster, pods.placed(more) | {("backend", "west"): 3}) == 3
        assert addresses(cluster, None) == 3


class _Emulator(BaseHTTPRequestHandler):
    """The emulator's part of the interface: GET and PATCH /state."""

    def do_GET(self) -> None:
        self._answer(200, self.server.state)

    def do_PATCH(self) -> None:
        changes = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.patched.append(changes)
        if self.server.refuses:
            self._answer(400, {"problems": ["speed: 9; allowed: less"]})
            return
        self.server.state |= changes
        self._answer(200, self.server.state)

    def _answer(self, status: int, document: dict) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def emulator():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Emulator)
    server.state = {
        "speed": 1,
        "workers": 4,
        "error_rate": 0,
        "available": True,
        "delay_ms": 0,
        "delay_share": 1,
    }
    server.patched, server.refuses = [], False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def running(tmp_path: Path, emulator: ThreadingHTTPServer) -> SimpleNamespace:
    """A stack whose backends in west are the emulator. Nothing else of it runs."""
    loaded = scenario.load(SHIPPED)
    layout = pods.plan(loaded, 20_000)
    found = [
        replace(pod, health_port=emulator.server_port)
        if (pod.service, pod.cluster) == ("backend", "west")
        else pod
        for pod in layout.pods
    ]
    (tmp_path / "wan.json").write_text("[]")
    plan = replace(layout, pods=found)
    return SimpleNamespace(run=tmp_path, scenario=loaded, plan=plan, port=lambda _: 1)


def event(**change: dict) -> Event:
    return Event.model_validate({"at_seconds": 0, **change})


def test_a_service_is_changed_and_restored_to_what_it_was(tmp_path: Path, emulator) -> None:
    """Only the keys that an event has are sent. Restoring sends the state of before, once."""
    before = dict(emulator.state)
    made = changes.Changes(running(tmp_path, emulator))
    made.apply(event(service={"service": "backend", "cluster": "west", "speed": 0.5}))
    made.apply(event(service={"service": "backend", "cluster": "west", "error_rate": 0.1}))
    assert emulator.patched == [{"speed": 0.5}, {"error_rate": 0.1}]
    made.restore()
    assert emulator.state == before
    made.restore()
    assert len(emulator.patched) == 3


def test_a_refused_change_names_pod_and_reason(tmp_path: Path, emulator) -> None:
    """An event that did not happen ends the run, since the round would not be what it says."""
    emulator.refuses = True
    made = changes.Changes(running(tmp_path, emulator))
    with pytest.raises(LabError, match=r"west-backend-0: refused \{'speed': 9.0\}: .*allowed: less"):
        made.apply(event(service={"service": "backend", "cluster": "west", "speed": 9}))


def test_replicas_are_changed_in_the_files_of_endpoints(tmp_path: Path, emulator) -> None:
    """Every cluster's file has the pods in use, and all of the scenario's after restoring."""
    stack = running(tmp_path, emulator)
    pair = [pod for pod in stack.plan.pods if (pod.service, pod.cluster) == ("backend", "west")]
    stack.plan.pods.append(replace(pair[0], index=1, inbound_port=9))
    made = changes.Changes(stack)

    def addresses() -> list[str]:
        rows = yaml.safe_load((tmp_path / "endpoints-west.yaml").read_text())["services"]
        [found] = [r["addresses"] for r in rows if (r["service"], r["cluster"]) == ("backend", "west")]
        return found

    made.apply(event(replicas={"service": "backend", "cluster": "west", "pods": 2}))
    assert addresses()[1] == "127.0.0.1:9"
    made.restore()
    assert addresses() == [f"127.0.0.1:{pair[0].inbound_port}"]

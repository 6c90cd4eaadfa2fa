"""Envoy's own load-aware balancing is rendered with its defaults, beside the relay's routes."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from spillway_contracts import names
from spillway_lab.render import as_relay, load_aware, outbound, pods, templates
from spillway_lab.render.render import endpoints, render
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.scenario import scenario
from spillway_lab.stack import balancing

LAB = Path(__file__).resolve().parents[2]
PLAIN = scenario.load(LAB / "scenarios/four-clusters.yaml")
SCENARIO = PLAIN.model_copy(
    update={"document": PLAIN.document.model_copy(update={"policies": [load_aware.NAME]})}
)
BASE = 21_000
LAYOUT = pods.plan(SCENARIO, BASE)
GOLDEN = json.loads((LAB.parent / "contracts/golden/6_envoy_routes.json").read_text())
ROUTES = GOLDEN["services"]["frontend"]["outbound"]


def rendered(of: scenario.Scenario) -> dict[str, str]:
    addresses = [f"127.0.0.1:{9000 + i}" for i in range(len(of.clusters))]
    around = Surroundings(
        xds=addresses,
        otlp=addresses,
        toxiproxy="127.0.0.1:8474",
        templates=templates.read(LAB.parent / "infra"),
        filter_wasm=Path("/f.wasm"),
        out=Path("/run/lab"),
    )
    return render(of, BASE, around)


WITH, WITHOUT = rendered(SCENARIO), rendered(PLAIN)
CALLERS = balancing.callers(SCENARIO, LAYOUT.pods)


def bootstrap(files: dict[str, str], pod: pods.Pod) -> dict:
    return yaml.safe_load(files[f"envoy/{pod.name}.yaml"])


def envoy_cluster(pod: pods.Pod, service: str) -> dict:
    name = load_aware.cluster_name(service)
    [found] = [c for c in bootstrap(WITH, pod)["static_resources"]["clusters"] if c["name"] == name]
    return found


def test_everything_but_the_choice_is_as_in_the_relays_clusters() -> None:
    """Connections, ejections, checks and timeouts are those of the relay's golden clusters."""
    for of_relay in GOLDEN["clusters"]:
        of_relay = copy.deepcopy(of_relay)
        service = of_relay["name"].split("|")[0]
        if checks := of_relay.pop("health_checks", None):
            assert checks == [as_relay.check(service)]
            assert of_relay["connect_timeout"] == as_relay.connect_timeout(25)
        for key in ("name", "type", "eds_cluster_config", "lb_policy", "connect_timeout"):
            del of_relay[key]
        assert of_relay == as_relay.SETTINGS
    assert {c["lb_policy"] for c in GOLDEN["clusters"]} == {"LEAST_REQUEST"}


def test_the_policy_has_its_documented_defaults() -> None:
    """Only the choice within a locality is given, because it has no default."""
    assert CALLERS
    for caller in CALLERS:
        for service in caller.services:
            [policy] = envoy_cluster(caller.pod, service)["load_balancing_policy"]["policies"]
            typed = policy["typed_extension_config"]["typed_config"]
            assert typed.pop("@type").endswith(".load_aware_locality.v3.LoadAwareLocality")
            assert set(typed) == {"endpoint_picking_policy"}


def test_one_envoy_cluster_spans_all_clusters_of_the_service() -> None:
    """Localities are the clusters. The pod's own equals its node's locality, which Envoy prefers.

    Addresses are those that the relay gets: direct in the own cluster, over the WAN elsewhere. Only
    the latter are checked, as by the relay's Envoy clusters.
    """
    for caller in CALLERS:
        node = bootstrap(WITH, caller.pod)["node"]["locality"]
        assert node == {"zone": caller.pod.cluster}
        for service in caller.services:
            source = envoy_cluster(caller.pod, service)["eds_cluster_config"]["eds_config"]
            file = f"envoy/{caller.pod.name}/endpoints.yaml"
            assert source["path_config_source"]["path"] == f"/run/lab/{file}"
            [assignment] = [
                found
                for found in yaml.safe_load(WITH[file])["resources"]
                if found["cluster_name"] == load_aware.cluster_name(service)
            ]
            expected = {
                row["cluster"]: row["addresses"]
                for row in yaml.safe_load(WITH[f"endpoints-{caller.pod.cluster}.yaml"])["services"]
                if row["service"] == service
            }
            found, tagged = {}, set()
            for locality in assignment["endpoints"]:
                sockets = [e["endpoint"]["address"]["socket_address"] for e in locality["lb_endpoints"]]
                zone = locality["locality"]["zone"]
                assert locality["locality"] == {"zone": zone}
                unchecked = [
                    e["endpoint"].get("health_check_config", {}).get("disable_active_health_check", False)
                    for e in locality["lb_endpoints"]
                ]
                assert set(unchecked) == {zone == caller.pod.cluster}
                found[zone] = [f"{s['address']}:{s['port_value']}" for s in sockets]
                tagged |= {
                    (zone, e["metadata"]["filter_metadata"][load_aware.METADATA]["cluster"])
                    for e in locality["lb_endpoints"]
                }
            assert found == expected
            assert tagged == {(zone, zone) for zone in found}
            assert len(found) == len(SCENARIO.clusters)


def test_nothing_changes_without_the_policy() -> None:
    """Other scenarios have no such file, Envoy cluster or load report."""
    assert not any(name.endswith(outbound.FILE) for name in WITHOUT)
    assert not any("load_aware" in text for text in WITHOUT.values())
    assert not any("LAB_LOAD_REPORT_WINDOW_MS" in text for text in WITHOUT.values())
    assert balancing.callers(PLAIN, LAYOUT.pods) == []
    assert WITH["lab.process-compose.yaml"].count("LAB_LOAD_REPORT_WINDOW_MS=1000") == len(LAYOUT.pods)


def test_the_rest_of_the_bootstrap_stays() -> None:
    """Inbound listener, filters, admin and the other Envoy clusters are those of every pod.

    The outbound listener keeps its filters in their order. A pod that calls nobody is unchanged.
    """
    for pod in LAYOUT.pods:
        before, after = bootstrap(WITHOUT, pod), bootstrap(WITH, pod)
        caller = next((c for c in CALLERS if c.pod == pod), None)
        if caller is None:
            assert before == after
            continue
        kept = [c for c in after["static_resources"]["clusters"] if not c["name"].startswith("load-aware/")]
        assert kept == before["static_resources"]["clusters"]
        [in_before, out_before] = before["static_resources"]["listeners"]
        [in_after, out_after] = after["static_resources"]["listeners"]
        assert in_before == in_after
        managers = [
            listener["filter_chains"][0]["filters"][0]["typed_config"] for listener in (out_before, out_after)
        ]
        *filters, router = managers[0].pop("http_filters")
        *filters_after, router_after = managers[1].pop("http_filters")
        assert filters == filters_after
        [log] = router_after["typed_config"].pop("upstream_log")
        assert router == router_after
        assert log["name"] == "envoy.access_loggers.stats"
        changed = {key for key in managers[0] | managers[1] if managers[0].get(key) != managers[1].get(key)}
        assert changed == {"rds", "scoped_routes", "early_header_mutation_extensions"}
        path = managers[1]["scoped_routes"]["scoped_rds"]["scoped_rds_config_source"]["path_config_source"]
        assert path == {"path": f"/run/lab/{caller.file}"}
        assert yaml.safe_load(WITH[caller.file]) == outbound.by_relay()


def test_routes_keep_all_but_their_destinations() -> None:
    """Matches, names, limits and retries of the relay's routes stay, and a refusal stays whole.

    A service without an Envoy cluster keeps the relay's destinations.
    """
    routes = copy.deepcopy(ROUTES)
    refusal = {"name": "denied", "match": {"prefix": "/x"}, "direct_response": {"status": 503}}
    routes["virtual_hosts"][0]["routes"].insert(0, refusal)
    services = [host["name"] for host in routes["virtual_hosts"]]
    dumped = {"@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"} | routes
    changed = outbound.balanced(dumped, services[:-1])
    assert "@type" not in changed
    assert changed["virtual_hosts"][-1] == routes["virtual_hosts"][-1]
    assert changed["virtual_hosts"][0]["routes"][0] == refusal
    seen = 0
    for before, after in zip(routes["virtual_hosts"][:-1], changed["virtual_hosts"][:-1], strict=True):
        assert {k: v for k, v in before.items() if k != "routes"} == {
            k: v for k, v in after.items() if k != "routes"
        }
        for old, new in zip(before["routes"], after["routes"], strict=True):
            if "route" in old:
                seen += 1
                assert new["route"].pop("cluster") == load_aware.cluster_name(before["name"])
                del old["route"]["weighted_clusters"]
            assert old == new
    assert seen


def test_the_relays_routes_stay_subscribed() -> None:
    """While Envoy balances, the relay's routes are in the file under a key that no request has."""
    content = outbound.by_envoy(ROUTES, ["backend"])["resources"]
    keys = {scope["key"]["fragments"][0]["string_key"]: scope for scope in content}
    assert "route_configuration" in keys.pop(outbound.IN_FORCE)
    assert [scope["route_configuration_name"] for scope in keys.values()] == [names.XDS_OUTBOUND_ROUTE]


def test_the_key_in_force_is_the_one_that_requests_have() -> None:
    """The header that the bootstrap sets on outbound requests selects the scope in force."""
    manager = bootstrap(WITH, CALLERS[0].pod)["static_resources"]["listeners"][1]
    manager = manager["filter_chains"][0]["filters"][0]["typed_config"]
    [extension] = manager["early_header_mutation_extensions"]
    [mutation] = extension["typed_config"]["mutations"]
    header = {"key": names.HTTP_HEADER_ROUTES, "value": outbound.IN_FORCE}
    assert mutation["append"]["header"] == header
    [fragment] = manager["scoped_routes"]["scope_key_builder"]["fragments"]
    assert fragment["header_value_extractor"]["name"] == names.HTTP_HEADER_ROUTES


def test_a_far_cluster_has_time_to_connect() -> None:
    """The time for a connection grows with the farthest cluster, and is at most 5 s."""
    near = load_aware.Place("a", (("127.0.0.1", 1),), 0)
    far = replace(near, cluster="b", rtt_ms=200)
    assert load_aware.cluster("s", [near, far], "/f")["connect_timeout"] == "0.900s"
    assert load_aware.cluster("s", [near, replace(far, rtt_ms=9000)], "/f")["connect_timeout"] == "5.000s"


def test_endpoints_follow_a_change(tmp_path: Path) -> None:
    """New endpoints replace those of the calling Envoys' files, and of no other pod."""
    documents = {cluster: endpoints(LAYOUT, cluster) for cluster in SCENARIO.clusters}
    gone = SCENARIO.clusters[-1]
    for document in documents.values():
        document["services"] = [row for row in document["services"] if row["cluster"] != gone]
    balancing.set_endpoints(tmp_path, SCENARIO, CALLERS, documents)
    written = {path.parent.name: path for path in tmp_path.glob("envoy/*/endpoints.yaml")}
    assert set(written) == {caller.pod.name for caller in CALLERS}
    for path in written.values():
        for found in yaml.safe_load(path.read_text())["resources"]:
            zones = [locality["locality"]["zone"] for locality in found["endpoints"]]
            assert sorted(zones) == sorted(SCENARIO.clusters[:-1])


@pytest.mark.parametrize("pod", LAYOUT.pods, ids=lambda pod: pod.name)
def test_only_called_services_have_an_envoy_cluster(pod: pods.Pod) -> None:
    """An Envoy balances, and checks, only the services that its pod calls."""
    clusters = bootstrap(WITH, pod)["static_resources"]["clusters"]
    found = sorted(c["name"] for c in clusters if c["name"].startswith("load-aware/"))
    expected = load_aware.called_by(SCENARIO.application, pod.service)
    assert found == [load_aware.cluster_name(service) for service in expected]

"""A scenario becomes files that match the contracts, with ports that do not clash."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from spillway.v1.topology_pb2 import Endpoints
from spillway_contracts import topology as topologies
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import files, pods, templates
from spillway_lab.render.render import endpoints, identities, render
from spillway_lab.render.surroundings import Surroundings
from spillway_lab.scenario import scenario
from spillway_lab.scenario.errors import InvalidInput

LAB = Path(__file__).resolve().parents[2]
SCENARIO = scenario.load(LAB / "scenarios/four-clusters.yaml")
BASE = 21_000
TEMPLATES = templates.read(LAB.parent / "infra")


def surroundings(**changes) -> Surroundings:
    addresses = [f"127.0.0.1:{9000 + i}" for i in range(len(SCENARIO.clusters))]
    base = Surroundings(
        xds=addresses,
        otlp=addresses,
        toxiproxy="127.0.0.1:8474",
        templates=TEMPLATES,
        filter_wasm=Path("/f.wasm"),
        out=Path("/run/lab"),
    )
    return replace(base, **changes)


def test_topology_passes_the_contract(tmp_path: Path) -> None:
    """The contracts' own loader accepts topology.yaml, which has links in both directions."""
    files.write(tmp_path, render(SCENARIO, BASE, surroundings()))
    topology = topologies.load(tmp_path / "topology.yaml")
    assert [c.name for c in topology.clusters] == SCENARIO.clusters
    pairs = {(link.source_cluster, link.destination_cluster) for link in topology.links}
    assert pairs == {(b, a) for a, b in pairs}


def test_endpoints_lead_local_directly_and_remote_over_the_wan() -> None:
    """Every address that a relay gets is of the right kind.

    It is the inbound listener of a pod in its own cluster, or the WAN listener of exactly (this
    cluster, that cluster, that service).
    """
    layout = pods.plan(SCENARIO, BASE)
    for cluster in SCENARIO.clusters:
        document = endpoints(layout, cluster)
        json_format.ParseDict(document, Endpoints())
        for row in document["services"]:
            ports = {int(address.rpartition(":")[2]) for address in row["addresses"]}
            if row["cluster"] == cluster:
                expected = set(layout.entry_ports(row["service"], cluster))
            else:
                expected = {
                    way.listen_port
                    for way in layout.wan
                    if (way.source_cluster, way.destination_cluster, way.pod.service)
                    == (cluster, row["cluster"], row["service"])
                }
            assert ports == expected
            assert ports


def test_an_envoy_is_given_every_relay_of_its_cluster() -> None:
    """An Envoy gets its cluster's relays at their own addresses.

    The certificate of the relays names both hosts.
    """
    first, *others = [f"127.0.0.1:{9000 + i}" for i in range(len(SCENARIO.clusters))]
    around = surroundings(xds=[f"{first}+relay-2:9100", *others])
    pod = next(p for p in pods.plan(SCENARIO, BASE).pods if p.cluster == SCENARIO.clusters[0])
    bootstrap = yaml.safe_load(render(SCENARIO, BASE, around)[f"envoy/{pod.name}.yaml"])
    [xds] = [c for c in bootstrap["static_resources"]["clusters"] if c["name"] == "spillway-xds"]
    [locality] = xds["load_assignment"]["endpoints"]
    found = [e["endpoint"]["address"]["socket_address"] for e in locality["lb_endpoints"]]
    assert [(a["address"], a["port_value"]) for a in found] == [("127.0.0.1", 9000), ("relay-2", 9100)]
    hosts = {i.name: i.hosts for i in identities(SCENARIO, BASE, around)}
    assert hosts[f"relay-{SCENARIO.clusters[0]}"] == ("127.0.0.1", "relay-2")


def all_ports(layout: pods.Plan) -> list[int]:
    ports = [layout.wan_health_port, *(way.listen_port for way in layout.wan)]
    for pod in layout.pods:
        ports += [pod.app_port, pod.health_port, pod.inbound_port, pod.outbound_port, pod.admin_port]
    return ports


def test_ports_are_distinct_and_deterministic() -> None:
    """No port is assigned twice, and the same base gives the same plan.

    A copy that follows it does not clash.
    """
    layout = pods.plan(SCENARIO, BASE)
    ports = all_ports(layout)
    assert len(set(ports)) == len(ports)
    assert min(ports) >= BASE
    assert max(ports) < BASE + layout.ports_used
    assert pods.plan(SCENARIO, BASE) == layout
    other = all_ports(pods.plan(SCENARIO, BASE + layout.ports_used))
    assert not set(ports) & set(other)


@pytest.mark.parametrize("base", [80, 65_530, -1])
def test_port_base_out_of_range(base: int) -> None:
    """A base whose ports do not fit is refused. The error names the allowed range."""
    with pytest.raises(InvalidInput, match=r"--port-base: .* allowed: 1024 to \d+"):
        pods.plan(SCENARIO, base)


def test_supervisor_has_two_processes_a_pod() -> None:
    """Emulator and Envoy of each pod have a probe, a restart policy and a log.

    The emulator has its complete environment.
    """
    rendered = render(SCENARIO, BASE, surroundings())
    processes = yaml.safe_load(rendered["lab.process-compose.yaml"])["processes"]
    layout = pods.plan(SCENARIO, BASE)
    names = {pod.name for pod in layout.pods}
    assert set(processes) == names | {f"{name}-envoy" for name in names} | {"wan"}
    for name, process in processes.items():
        assert process["availability"]["restart"] == "on_failure"
        assert process["readiness_probe"]["http_get"]["port"].isdigit()
        assert process["log_location"] == f"/run/lab/log/{name}.log"
    environment = dict(line.split("=", 1) for line in processes[layout.pods[0].name]["environment"])
    assert set(environment) == {
        "SPILLWAY_CLUSTER", "SPILLWAY_SERVICE", "SPILLWAY_POD", "SPILLWAY_OUTBOUND", "SPILLWAY_COLLECTOR",
        "SPILLWAY_COLLECTOR_CA", "SPILLWAY_COLLECTOR_CERT", "SPILLWAY_COLLECTOR_KEY", "SPILLWAY_HEALTH_LISTEN",
        "LAB_APPLICATION", "LAB_LISTEN",
    }  # fmt: skip
    assert f"application-{layout.pods[0].cluster}.yaml" in rendered


def test_a_dollar_in_a_path_survives_the_supervisor() -> None:
    """process-compose expands $NAME, so a dollar in a path is escaped."""
    rendered = render(SCENARIO, BASE, surroundings(out=Path("/run/a$b c")))
    processes = yaml.safe_load(rendered["lab.process-compose.yaml"])["processes"]
    for process in processes.values():
        assert not re.search(r"(?<!\$)\$(?!\$)", process["command"] + process["log_location"])


def test_a_pods_envoy_is_filled_in_completely() -> None:
    """Bootstrap and SDS files are valid YAML without open placeholders.

    The certificate is the pod's own. Relay and collector are contacted with it over TLS 1.3, and
    only those of the pod's own cluster are accepted.
    """
    rendered = render(SCENARIO, BASE, surroundings())
    for pod in pods.plan(SCENARIO, BASE).pods:
        texts = [rendered[f"envoy/{pod.name}{end}"] for end in (".yaml", "/certificate.yaml", "/trust.yaml")]
        assert not any("${" in text for text in texts)
        bootstrap, certificate, trust = map(yaml.safe_load, texts)
        assert bootstrap["node"]["cluster"] == pod.service
        for server, role in (("spillway-xds", "relay"), ("spillway-collector", "collector")):
            [cluster] = [c for c in bootstrap["static_resources"]["clusters"] if c["name"] == server]
            tls = cluster["transport_socket"]["typed_config"]["common_tls_context"]
            trusted = tls["combined_validation_context"]
            [name] = trusted["default_validation_context"]["match_typed_subject_alt_names"]
            assert name["matcher"] == {"exact": f"spiffe://spillway.local/cluster/{pod.cluster}/{role}"}
            files = [
                trusted["validation_context_sds_secret_config"],
                *tls["tls_certificate_sds_secret_configs"],
            ]
            paths = [source["sds_config"]["path_config_source"]["path"] for source in files]
            assert paths == [f"/run/lab/envoy/{pod.name}/{file}.yaml" for file in ("trust", "certificate")]
            assert tls["tls_params"]["tls_minimum_protocol_version"] == "TLSv1_3"
        chain = certificate["resources"][0]["tls_certificate"]["certificate_chain"]["filename"]
        assert chain == f"/run/lab/tls/{pod.name}/tls.crt"
        authorities = trust["resources"][0]["validation_context"]["trusted_ca"]["filename"]
        assert authorities == f"/run/lab/tls/{pod.name}/ca.crt"


def test_unknown_placeholder_is_named() -> None:
    """A template with an unknown placeholder is refused. The error names file and variable."""
    broken = TEMPLATES | {templates.POD: "x: ${NOT_THERE}"}
    with pytest.raises(InvalidInput, match=r"infra/envoy/pod.yaml: 'NOT_THERE'; placeholders: SPILLWAY_"):
        render(SCENARIO, BASE, surroundings(templates=broken))


def test_missing_templates_are_all_named(tmp_path: Path) -> None:
    """A folder without the templates is refused. The error lists every missing file."""
    with pytest.raises(InvalidInput) as caught:
        templates.read(tmp_path)
    assert len(caught.value.problems) == len(templates.ALL)
    assert "SPILLWAY_LAB_INFRA" in caught.value.problems[0]


def test_every_relay_collector_and_pod_gets_an_identity() -> None:
    """Relays and collectors are servers with the host of their address.

    Pods of the same service and cluster have the same URI.
    """
    wanted = {identity.name: identity for identity in identities(SCENARIO, BASE, surroundings())}
    layout = pods.plan(SCENARIO, BASE)
    servers = {f"{role}-{cluster}" for role in ("relay", "collector") for cluster in SCENARIO.clusters}
    assert set(wanted) == servers | {pod.name for pod in layout.pods}
    assert all(wanted[name].hosts == ("127.0.0.1",) for name in servers)
    for pod in layout.pods:
        uri = f"spiffe://spillway.local/cluster/{pod.cluster}/service/{pod.service}"
        assert (wanted[pod.name].uri, wanted[pod.name].hosts) == (uri, ())


def test_each_cluster_gets_an_authority_of_its_own(tmp_path: Path) -> None:
    """The renderer issues one authority per cluster.

    Each certificate trusts only the authority of its own cluster.
    """
    store = Keystore(tmp_path)
    store.issue(identities(SCENARIO, BASE, surroundings()))
    authorities = {
        cluster: (store.authority(cluster) / "ca.crt").read_bytes() for cluster in SCENARIO.clusters
    }
    assert len(set(authorities.values())) == len(SCENARIO.clusters) > 1
    for identity in identities(SCENARIO, BASE, surroundings()):
        assert (tmp_path / identity.name / "ca.crt").read_bytes() == authorities[identity.cluster]


def test_addresses_are_checked() -> None:
    """There must be one relay and one collector address per cluster, each host:port."""
    with pytest.raises(InvalidInput, match="xds: 1 addresses; allowed: one for each of"):
        render(SCENARIO, BASE, surroundings(xds=["127.0.0.1:1"]))
    with pytest.raises(InvalidInput, match="otlp: 'collector'; allowed: host:port"):
        render(SCENARIO, BASE, surroundings(otlp=["collector"] * len(SCENARIO.clusters)))


def test_toxiproxy_file_carries_proxies_only() -> None:
    """Toxiproxy's own file has four keys per proxy. The delays are in wan.json."""
    rendered = render(SCENARIO, BASE, surroundings())
    proxies, plan = json.loads(rendered["toxiproxy.json"]), json.loads(rendered["wan.json"])
    assert all(set(proxy) == {"name", "listen", "upstream", "enabled"} for proxy in proxies)
    assert [row["name"] for row in plan] == [proxy["name"] for proxy in proxies]
    assert all(row["rtt_ms"] > 0 for row in plan)


def test_code_names_no_cluster_or_service() -> None:
    """Names of clusters and services are data, so no source file of the lab contains one."""
    names = [*SCENARIO.clusters, *SCENARIO.application.services]
    word = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    package = LAB / "spillway_lab"
    sources = [path for path in package.rglob("*.py") if package / "testing" not in path.parents]
    sources += [path for path in (LAB / "emulator").glob("*.go") if not path.name.endswith("_test.go")]
    assert sources
    found = [
        f"{path.name}:{number}: {match.group()}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (match := word.search(line))
    ]
    assert found == []

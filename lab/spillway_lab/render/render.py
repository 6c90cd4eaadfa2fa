"""Renders a scenario into the files that the stack runs on. Pure: it reads and writes no files.

topology.yaml              for the optimizer, publisher and streams
endpoints-<cluster>.yaml   for that cluster's relay
application-<cluster>.yaml for that cluster's emulators
toxiproxy.json             for toxiproxy-server -config
wan.json                   for `python -m spillway_lab wan`: delays (not possible in toxiproxy.json)
pods.yaml                  every pod with its ports and environment, for people and tools
envoy/                     each pod's Envoy (see bootstrap)
nats/                      NATS's configuration (see bus)
lab.process-compose.yaml   the lab's part of the supervisor's project

Certificates are not among these files. `identities` returns those that the run needs.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict

import yaml
from google.protobuf import json_format
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import topology as topologies

from spillway_lab.keys import certificates, keystore
from spillway_lab.keys.certificates import Identity
from spillway_lab.render import bootstrap, bus, load_aware
from spillway_lab.render.compose import compose
from spillway_lab.render.pods import LOCAL, Network, Plan, Pod, placed, plan
from spillway_lab.render.surroundings import Surroundings, each, split
from spillway_lab.scenario import application as applications
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario


def render(scenario: Scenario, port_base: int, around: Surroundings) -> dict[str, str]:
    """Returns file name -> content. Raises InvalidInput when the scenario breaks a contract."""
    _check_addresses(scenario, around)
    layout = plan(scenario, port_base)
    files = {"topology.yaml": _yaml(topology(scenario))}
    used = {c: endpoints(layout, c, around.network, placed(scenario)) for c in scenario.clusters}
    for cluster in scenario.clusters:
        files[f"endpoints-{cluster}.yaml"] = _yaml(used[cluster])
        files[f"application-{cluster}.yaml"] = applications.to_yaml(scenario.application_of(cluster))
    files["toxiproxy.json"] = _json(proxies(layout, around.network))
    files["wan.json"] = _json(wan(layout, around.network))
    environments = {pod.name: environment(scenario, pod, around) for pod in layout.pods}
    files["pods.yaml"] = _yaml(
        [asdict(pod) | {"name": pod.name, "env": environments[pod.name]} for pod in layout.pods]
    )
    for pod in layout.pods:
        index = scenario.clusters.index(pod.cluster)
        called = called_places(scenario, pod, used[pod.cluster])
        files |= bootstrap.files(pod, around.xds[index], around.otlp[index], around, called)
    files |= bus.configuration(scenario.clusters, around.templates)
    files["lab.process-compose.yaml"] = _yaml(compose(layout, environments, around))
    return files


def identities(scenario: Scenario, port_base: int, around: Surroundings) -> list[Identity]:
    """Returns the identities of all certificates that the run needs.

    These are one per pod, and one per relay and collector with the hosts at which Envoys connect.
    """
    servers = [
        of(cluster, tuple(dict.fromkeys(split(address)[0] for address in each(addresses))))
        for of, lists in ((certificates.relay, around.xds), (certificates.collector, around.otlp))
        for cluster, addresses in zip(scenario.clusters, lists, strict=True)
    ]
    pods = plan(scenario, port_base).pods
    return servers + [certificates.pod(pod.name, pod.cluster, pod.service) for pod in pods]


def topology(scenario: Scenario) -> dict:
    """Returns spillway.v1.Topology as a document, checked against the contract."""
    document = {
        "clusters": [{"name": name, "region": c.region} for name, c in scenario.document.clusters.items()],
        "links": [link.model_dump(exclude={"both_ways"}) for link in scenario.links()],
        "services": [
            {
                "name": service,
                "placements": [_placement(scenario, service, cluster) for cluster in placements],
            }
            for service, placements in scenario.document.placement.items()
        ],
        "usd_per_ms_per_million_requests": scenario.document.usd_per_ms_per_million_requests,
    }
    if problems := topologies.check(json_format.ParseDict(document, Topology())):
        raise InvalidInput([f"scenario {scenario.name}: {problem}" for problem in problems])
    return document


def _placement(scenario: Scenario, service: str, cluster: str) -> dict:
    placement = {"cluster": cluster, "threshold_rps": scenario.threshold_rps(service, cluster)}
    autoscaler = scenario.document.autoscalers.get(service)
    if autoscaler is not None and autoscaler.declared and autoscaler.acts_in(cluster):
        kept = {"target_utilisation", "max_pods"}
        placement["autoscaler"] = autoscaler.model_dump(include=kept)
    return placement


def endpoints(
    layout: Plan,
    cluster: str,
    network: Network = LOCAL,
    active: Mapping[tuple[str, str], int] | None = None,
) -> dict:
    """Returns spillway.v1.Endpoints as seen from one cluster.

    Its own pods are reached directly, pods of other clusters over the WAN. Clusters without a link
    from this one are left out. `active` is the number of pods in use by (service, cluster); None:
    all.
    """

    def used(pod: Pod) -> bool:
        return active is None or pod.index < active[pod.service, pod.cluster]

    services: dict[tuple[str, str], list[str]] = {}
    for pod in layout.pods:
        if pod.cluster == cluster and used(pod):
            services.setdefault((pod.service, pod.cluster), []).append(
                f"{network.envoy(pod)}:{pod.inbound_port}"
            )
    for proxy in layout.wan:
        if proxy.source_cluster == cluster and used(proxy.pod):
            key = (proxy.pod.service, proxy.destination_cluster)
            services.setdefault(key, []).append(f"{network.toxiproxy()}:{proxy.listen_port}")
    rows = [{"service": s, "cluster": c, "addresses": addresses} for (s, c), addresses in services.items()]
    return {"cluster": cluster, "services": rows}


def called_places(scenario: Scenario, pod: Pod, document: dict) -> dict[str, list[load_aware.Place]]:
    """Returns the services that a pod calls, with their places; none without `envoy-load-aware`.

    `document` are the endpoints as seen from the pod's cluster.
    """
    if load_aware.NAME not in scenario.document.policies:
        return {}
    rtt_ms = {
        link.destination_cluster: link.rtt_ms
        for link in scenario.links()
        if link.source_cluster == pod.cluster
    }
    called = load_aware.called_by(scenario.application, pod.service)
    places: dict[str, list[load_aware.Place]] = {}
    for row in document["services"]:
        if row["service"] in called:
            addresses = tuple((host, int(port)) for host, port in map(split, row["addresses"]))
            place = load_aware.Place(row["cluster"], addresses, rtt_ms.get(row["cluster"], 0.0))
            places.setdefault(row["service"], []).append(place)
    return places


def proxies(layout: Plan, network: Network = LOCAL) -> list[dict]:
    """Returns Toxiproxy's configuration file."""
    return [
        {
            "name": proxy.name,
            "listen": f"{network.listen}:{proxy.listen_port}",
            "upstream": f"{network.envoy(proxy.pod)}:{proxy.pod.inbound_port}",
            "enabled": True,
        }
        for proxy in layout.wan
    ]


def wan(layout: Plan, network: Network = LOCAL) -> list[dict]:
    """Returns each proxy with its clusters and round-trip time, for `spillway_lab.stack.wan`."""
    return [
        proxy
        | {
            "source_cluster": way.source_cluster,
            "destination_cluster": way.destination_cluster,
            "rtt_ms": way.rtt_ms,
        }
        for proxy, way in zip(proxies(layout, network), layout.wan, strict=True)
    ]


def environment(scenario: Scenario, pod: Pod, around: Surroundings) -> dict[str, str]:
    """Returns the environment of a pod's emulator."""
    index = scenario.clusters.index(pod.cluster)
    tls = around.tls_folder(pod.name)
    return {
        "SPILLWAY_CLUSTER": pod.cluster,
        "SPILLWAY_SERVICE": pod.service,
        "SPILLWAY_POD": pod.name,
        "SPILLWAY_OUTBOUND": f"{around.network.envoy(pod)}:{pod.outbound_port}",
        "SPILLWAY_COLLECTOR": around.otlp[index],
        "SPILLWAY_COLLECTOR_CA": str(tls / keystore.TRUST),
        "SPILLWAY_COLLECTOR_CERT": str(tls / keystore.CERTIFICATE),
        "SPILLWAY_COLLECTOR_KEY": str(tls / keystore.KEY),
        "SPILLWAY_HEALTH_LISTEN": f"{around.network.listen}:{pod.health_port}",
        "LAB_APPLICATION": str(around.out / f"application-{pod.cluster}.yaml"),
        "LAB_LISTEN": f"{around.network.listen}:{pod.app_port}",
        **_load_reports(scenario),
    }


def _load_reports(scenario: Scenario) -> dict[str, str]:
    """Pods report their load where a policy of the scenario reads it."""
    if load_aware.NAME not in scenario.document.policies:
        return {}
    return {"LAB_LOAD_REPORT_WINDOW_MS": f"{load_aware.REPORT_WINDOW_MS:g}"}


def _check_addresses(scenario: Scenario, around: Surroundings) -> None:
    problems = []
    for key, addresses in (("xds", around.xds), ("otlp", around.otlp)):
        if len(addresses) != len(scenario.clusters):
            problems.append(
                f"{key}: {len(addresses)} addresses; allowed: one for each of "
                f"{', '.join(scenario.clusters)}, in order"
            )
    for key, address in [("xds", a) for x in around.xds for a in each(x)] + [
        ("otlp", a) for a in around.otlp
    ]:
        host, port = split(address)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            problems.append(f"{key}: {address!r}; allowed: host:port")
    if problems:
        raise InvalidInput(problems)


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=110)


def _json(document: object) -> str:
    return json.dumps(document, indent=2) + "\n"

"""A pod's Envoy: its bootstrap, and the files through which it reloads certificates. Pure.

envoy/<pod>.yaml               bootstrap
envoy/<pod>/inbound.yaml       source of the inbound listener's routes
envoy/<pod>/certificate.yaml   SDS: paths of the pod's certificate and key
envoy/<pod>/trust.yaml         SDS: path of the authorities that the pod trusts
envoy/<pod>/outbound.yaml      source of the outbound listener's routes, where `outbound` makes it
envoy/<pod>/endpoints.yaml     endpoints of the Envoy clusters of `load_aware`, where there are any
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from string import Template
from types import MappingProxyType

import yaml

from spillway_lab.keys import certificates
from spillway_lab.render import load_aware, outbound, templates
from spillway_lab.render.load_aware import Place
from spillway_lab.render.pods import Pod
from spillway_lab.render.surroundings import Surroundings, each, split

NOTHING: Mapping[str, Sequence[Place]] = MappingProxyType({})


def files(
    pod: Pod, xds: str, otlp: str, around: Surroundings, called: Mapping[str, Sequence[Place]] = NOTHING
) -> dict[str, str]:
    """Returns file name -> content for one pod.

    `xds` is the host:port of the pod's relays, several joined by +. `otlp` is the host:port of its
    collector. `called` are the services for which the pod's Envoy can balance by itself. Raises
    InvalidInput for a placeholder that has no value.
    """
    values = _values(pod, xds, otlp, around)
    beside = (templates.INBOUND, templates.CERTIFICATE, templates.TRUST)
    targets = {templates.POD: f"envoy/{pod.name}.yaml"} | {
        name: f"envoy/{pod.name}/{PurePosixPath(name).name}" for name in beside
    }
    filled = {
        target: templates.fill(name, Template(around.templates[name]), values)
        for name, target in targets.items()
    }
    return filled | _own_balancing(pod, filled, called, values["SPILLWAY_SDS_DIR"]) if called else filled


def _own_balancing(
    pod: Pod, filled: dict[str, str], called: Mapping[str, Sequence[Place]], folder: str
) -> dict[str, str]:
    """The files of an Envoy that can balance by itself. The relay's routes are in force first."""
    clusters = [load_aware.cluster(service, places, folder) for service, places in called.items()]
    name = f"envoy/{pod.name}.yaml"
    documents = {
        name: outbound.bootstrap(yaml.safe_load(filled[name]), clusters, folder),
        f"envoy/{pod.name}/{outbound.FILE}": outbound.by_relay(),
        f"envoy/{pod.name}/{load_aware.ENDPOINTS_FILE}": load_aware.assignments(called, pod.cluster),
    }
    return {name: yaml.safe_dump(document, sort_keys=False) for name, document in documents.items()}


def _values(pod: Pod, xds: str, otlp: str, around: Surroundings) -> dict[str, str]:
    values = {
        "SPILLWAY_CLUSTER": pod.cluster,
        "SPILLWAY_SERVICE": pod.service,
        "SPILLWAY_POD": pod.name,
        "SPILLWAY_EDGE": str(pod.edge).lower(),
        "SPILLWAY_SAMPLE_RATIO": "1",
        "SPILLWAY_FILTER_WASM": str(around.filter_wasm),
        "SPILLWAY_SDS_DIR": str(around.out / "envoy" / pod.name),
        "SPILLWAY_TLS_DIR": str(around.tls_folder(pod.name)),
        "XDS_IDENTITY": certificates.RELAY_PATTERN.format(cluster=pod.cluster),
        "COLLECTOR_IDENTITY": certificates.COLLECTOR_PATTERN.format(cluster=pod.cluster),
    }
    ports = {"ADMIN": pod.admin_port, "INBOUND": pod.inbound_port, "OUTBOUND": pod.outbound_port}
    addresses = {f"ENVOY_{name}": (around.network.listen, str(port)) for name, port in ports.items()}
    addresses["APP"] = (around.network.emulator(pod), str(pod.app_port))
    addresses["COLLECTOR"] = split(otlp)
    for name, (host, port) in addresses.items():
        values |= {f"{name}_HOST": host, f"{name}_PORT": port}
    return values | {"XDS_ENDPOINTS": f"[{', '.join(map(_endpoint, each(xds)))}]"}


def _endpoint(address: str) -> str:
    host, port = split(address)
    return f"{{ endpoint: {{ address: {{ socket_address: {{ address: {host}, port_value: {port} }} }} }} }}"

"""A pod's Envoy: its bootstrap, and the files through which it reloads certificates. Pure.

envoy/<pod>.yaml               bootstrap
envoy/<pod>/inbound.yaml       source of the inbound listener's routes
envoy/<pod>/certificate.yaml   SDS: paths of the pod's certificate and key
envoy/<pod>/trust.yaml         SDS: path of the authorities that the pod trusts
"""

from pathlib import PurePosixPath
from string import Template

from spillway_lab.keys import certificates
from spillway_lab.render import templates
from spillway_lab.render.pods import Pod
from spillway_lab.render.surroundings import Surroundings, each, split


def files(pod: Pod, xds: str, otlp: str, around: Surroundings) -> dict[str, str]:
    """Returns file name -> content for one pod.

    `xds` is the host:port of the pod's relays, several joined by +. `otlp` is the host:port of its
    collector. Raises InvalidInput for a placeholder that has no value.
    """
    values = _values(pod, xds, otlp, around)
    beside = (templates.INBOUND, templates.CERTIFICATE, templates.TRUST)
    targets = {templates.POD: f"envoy/{pod.name}.yaml"} | {
        name: f"envoy/{pod.name}/{PurePosixPath(name).name}" for name in beside
    }
    return {
        target: templates.fill(name, Template(around.templates[name]), values)
        for name, target in targets.items()
    }


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

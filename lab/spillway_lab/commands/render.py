"""The command `render`: writes the run folder of a scenario."""

import argparse
import json
from pathlib import Path

from spillway_lab.keys import signing
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import files, pods, templates
from spillway_lab.render.render import Surroundings, identities, render
from spillway_lab.scenario import scenario
from spillway_lab.stack.settings import RenderSettings, read

HELP = "writes a scenario's files: topology, endpoints, Envoys, NATS, WAN, certificates, signing key, supervisor's processes"

NETWORKS = {"local": pods.LOCAL, "compose": pods.COMPOSE}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scenario", type=Path, required=True)
    parser.add_argument("--port-base", type=int, required=True, help="first port of the lab; the rest follow")
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    parser.add_argument("--tls", type=Path, help="folder of the certificates; default: tls in the run folder")
    parser.add_argument(
        "--xds",
        help="host:port of each cluster's relays, joined by +; clusters comma-separated, in the scenario's order",
    )
    parser.add_argument("--otlp", help="host:port (OTLP gRPC) of each cluster's collector, likewise")
    parser.add_argument("--toxiproxy", help="host:port of Toxiproxy's HTTP API")
    parser.add_argument("--infra", type=Path, help="folder of the templates: envoy/ and nats/")
    parser.add_argument("--filter-wasm", type=Path, help="the telemetry filter that Envoy loads")
    parser.add_argument(
        "--network",
        choices=NETWORKS,
        default="local",
        help="addresses: all on this machine, or docker-compose.yml's",
    )
    parser.add_argument("--json", action="store_true", help="prints what was rendered as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    given = {name: getattr(arguments, name) for name in ("xds", "otlp", "toxiproxy", "infra", "filter_wasm")}
    settings = read(RenderSettings, **given)
    loaded = scenario.load(arguments.scenario)
    around = surroundings(settings, arguments.out, arguments.tls, NETWORKS[arguments.network])
    rendered = render(loaded, arguments.port_base, around)
    Keystore(around.tls_folder()).issue(identities(loaded, arguments.port_base, around))
    signing.issue(around.tls_folder(signing.OWNER), around.out / signing.PUBLIC_KEYS)
    written = files.write(around.out, rendered)
    layout = pods.plan(loaded, arguments.port_base)
    if arguments.json:
        print(json.dumps(_described(loaded, layout, around.out, written)))
    else:
        for path in written:
            print(path)
    return 0


def surroundings(
    settings: RenderSettings, out: Path, tls: Path | None, network: pods.Network
) -> Surroundings:
    """Returns what `render` needs from outside the scenario.

    Raises InvalidInput when a template cannot be read.
    """
    return Surroundings(
        xds=settings.xds,
        otlp=settings.otlp,
        toxiproxy=settings.toxiproxy,
        templates=templates.read(settings.infra),
        filter_wasm=settings.filter_wasm.resolve(),
        out=out.resolve(),
        tls=tls.resolve() if tls else None,
        emulator=settings.emulator,
        envoy=settings.envoy,
        python=settings.python,
        network=network,
    )


def _described(loaded: scenario.Scenario, layout: pods.Plan, out: Path, written: list[Path]) -> dict:
    entries = {
        request.service: {
            c: [f"{pods.HOST}:{p}" for p in layout.entry_ports(request.service, c)] for c in loaded.clusters
        }
        for request in loaded.document.requests
    }
    return {
        "out": str(out),
        "files": [str(path.relative_to(out)) for path in written],
        "clusters": loaded.clusters,
        "pods": [pod.name for pod in layout.pods],
        "entries": entries,
        "ports_used": layout.ports_used,
    }

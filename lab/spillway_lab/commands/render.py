"""The command `render`: writes the run folder of a scenario."""

import json
from pathlib import Path
from typing import Any

import click
from spillway_runtime import command_line

from spillway_lab.commands import options
from spillway_lab.keys import signing
from spillway_lab.keys.keystore import Keystore
from spillway_lab.render import files, pods, templates
from spillway_lab.render.render import Surroundings, identities, render
from spillway_lab.scenario import scenario
from spillway_lab.stack.settings import RenderSettings, read

NETWORKS = {"local": pods.LOCAL, "compose": pods.COMPOSE}


@click.command("render", cls=command_line.Command)
@options.scenario
@options.port_base
@click.option("--out", type=command_line.PATH, required=True, help="Run folder.")
@click.option(
    "--tls", type=command_line.PATH, help="Folder of the certificates. Default: tls in the run folder."
)
@click.option(
    "--xds",
    help="host:port of each cluster's relays, joined by +; clusters comma-separated, in the scenario's order.",
)
@click.option("--otlp", help="host:port (OTLP gRPC) of each cluster's collector, likewise.")
@click.option("--toxiproxy", help="host:port of Toxiproxy's HTTP API.")
@click.option("--infra", type=command_line.PATH, help="Folder of the templates: envoy/ and nats/.")
@click.option("--filter-wasm", type=command_line.PATH, help="The telemetry filter that Envoy loads.")
@click.option(
    "--network",
    type=click.Choice(list(NETWORKS)),
    default="local",
    show_default=True,
    help="Addresses: all on this machine, or docker-compose.yml's.",
)
@options.as_json
def command(
    file: Path, port_base: int, out: Path, tls: Path | None, network: str, as_json: bool, **given: Any
) -> None:
    """Writes a scenario's files.

    It writes topology, endpoints, Envoys, NATS, WAN, certificates, signing key, and the
    supervisor's processes.
    """
    settings = read(RenderSettings, **given)
    loaded = scenario.load(file).live()
    around = surroundings(settings, out, tls, NETWORKS[network])
    rendered = render(loaded, port_base, around)
    Keystore(around.tls_folder()).issue(identities(loaded, port_base, around))
    signing.issue(around.tls_folder(signing.OWNER), around.out / signing.PUBLIC_KEYS)
    written = files.write(around.out, rendered)
    layout = pods.plan(loaded, port_base)
    if as_json:
        print(json.dumps(_described(loaded, layout, around.out, written)))
    else:
        for path in written:
            print(path)


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

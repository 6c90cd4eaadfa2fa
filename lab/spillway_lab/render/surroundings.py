"""What stands around a rendered run: servers' addresses and the programs that run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spillway_lab.render.pods import LOCAL, Network


@dataclass(frozen=True)
class Surroundings:
    """What the lab does not decide: where the servers around it listen, and which files it runs.

    Lists are in the scenario's order of clusters; addresses are host:port.
    """

    xds: list[str]  # of each cluster's relays, joined by +
    otlp: list[str]  # gRPC, of each cluster's collector
    toxiproxy: str  # its HTTP API
    templates: Mapping[str, str]  # see spillway_lab.render.templates
    filter_wasm: Path
    out: Path  # absolute: where the rendered files will be
    tls: Path | None = None  # absolute: where the certificates will be; `tls` in `out` unless given
    emulator: str = "spillway-emulator"  # programs, found on PATH
    envoy: str = "envoy"
    python: str = "python"
    network: Network = LOCAL

    def tls_folder(self, name: str = "") -> Path:
        """The keystore's folder, or in it that of a pod, a relay or a collector."""
        return (self.tls or self.out / "tls") / name


def each(addresses: str) -> list[str]:
    """The addresses of a cluster's relays."""
    return addresses.split("+")


def split(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host, port

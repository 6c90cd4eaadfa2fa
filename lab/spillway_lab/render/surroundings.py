"""The servers and programs around a rendered run. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spillway_lab.render.pods import LOCAL, Network


@dataclass(frozen=True)
class Surroundings:
    """Settings that the lab does not decide: addresses of the servers, and files to run.

    Lists are in the scenario's order of clusters. Addresses are host:port.
    """

    xds: list[str]  # addresses of each cluster's relays, joined by +
    otlp: list[str]  # gRPC address of each cluster's collector
    toxiproxy: str  # address of its HTTP API
    templates: Mapping[str, str]  # file contents; see spillway_lab.render.templates
    filter_wasm: Path
    out: Path  # absolute path where the rendered files will be
    tls: Path | None = None  # absolute path of the certificates; default: `tls` in `out`
    emulator: str = "spillway-emulator"  # programs, found on PATH
    envoy: str = "envoy"
    python: str = "python"
    network: Network = LOCAL

    def tls_folder(self, name: str = "") -> Path:
        """Folder of the keystore, or the subfolder of one pod, relay or collector."""
        return (self.tls or self.out / "tls") / name


def each(addresses: str) -> list[str]:
    """Splits the joined addresses of a cluster's relays."""
    return addresses.split("+")


def split(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host, port

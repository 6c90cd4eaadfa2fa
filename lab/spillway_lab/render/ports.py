"""Ports of everything that listens: names from infra/ports.yaml, numbers from a base per copy."""

import socket
from pathlib import Path

import yaml

# Range in which bases are searched. It is below the ephemeral range, so that no client socket
# happens to hold one of the ports.
_FIRST_BASE, _LAST_BASE, _BLOCK = 20_000, 32_000, 400
# Ports from base + LAB_OFFSET upwards belong to the lab's pods and to Toxiproxy's listeners.
LAB_OFFSET = 100


def declared(path: Path) -> dict[str, dict[str, int]]:
    """Reads infra/ports.yaml: ports of `shared` services and of each `cluster`.

    docker-compose uses the same numbers.
    """
    return yaml.safe_load(path.read_text())


def environment_name(port_name: str) -> str:
    return f"{port_name.upper()}_PORT"


def assign(base: int, clusters: list[str], ports: dict[str, dict[str, int]]) -> tuple[dict, dict]:
    """Returns ports by environment name: those of the shared services, and a dict per cluster.

    Raises ValueError when there are more ports than LAB_OFFSET.
    """
    shared = {environment_name(name): base + i for i, name in enumerate(ports["shared"])}
    start, per_cluster = base + len(shared), {}
    for cluster in clusters:
        per_cluster[cluster] = {environment_name(name): start + i for i, name in enumerate(ports["cluster"])}
        start += len(ports["cluster"])
    if start > base + LAB_OFFSET:
        raise ValueError(
            f"{len(clusters)} clusters need {start - base} ports; {LAB_OFFSET} are kept for them"
        )
    return shared, per_cluster


def free_base() -> int:
    """Returns the first base for which every port of the block is free now."""
    for base in range(_FIRST_BASE, _LAST_BASE, _BLOCK):
        if all(_is_free(port) for port in range(base, base + _BLOCK)):
            return base
    raise RuntimeError(f"no block of {_BLOCK} free ports between {_FIRST_BASE} and {_LAST_BASE}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

"""A real Kafka broker (KRaft, one node) for tests, with its own ports and data.

It stops when the `with` block ends:

    with kafka_server(tmp_path) as address: ...     # "127.0.0.1:port"
    with kafka_process(tmp_path) as server: ...     # a Server that tests can stop, kill and restart

The broker runs with the stack's own starter and settings (infra/), with two differences: topics are
created at first use, and they have several partitions. The jars are those of the local stack, or of
SPILLWAY_TEST_KAFKA_HOME/libs.
"""

import contextlib
import os
import struct
from pathlib import Path

from spillway_lab.testing import servers

PARTITIONS = 4
_SETTINGS = f"\nauto.create.topics.enable=true\nnum.partitions={PARTITIONS}\n"
_CORRELATION = struct.pack(">i", 0x5911)
# An ApiVersions request, version 0, without a client id (Kafka protocol guide:
# https://kafka.apache.org/protocol).
_API_VERSIONS = struct.pack(">ihh", 10, 18, 0) + _CORRELATION + struct.pack(">h", -1)


def kafka_process(tmp_path: Path) -> contextlib.AbstractContextManager[servers.Server]:
    """Runs a broker in tmp_path/kafka. Its `url` is host:port.

    Raises FileNotFoundError when there are no jars.
    """
    return servers.running(kafka_server_of(tmp_path))


def kafka_server_of(tmp_path: Path) -> servers.Server:
    """Returns the same broker without starting it, so that tests can extend its settings."""
    libs = _libs()
    folder, port, controller = tmp_path / "kafka", servers.free_port(), servers.free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "server.properties"
    config.write_text((servers.ROOT / "infra" / "kafka" / "server.properties").read_text() + _SETTINGS)
    return servers.Server(
        url=f"127.0.0.1:{port}",
        command=[str(servers.ROOT / "infra" / "local" / "kafka" / "run")],
        environment={
            "KAFKA_LIBS": str(libs),
            "KAFKA_CONFIG": str(config),
            "KAFKA_DATA_DIR": str(folder / "data"),
            "KAFKA_LISTEN": f"127.0.0.1:{port}",
            "KAFKA_ADVERTISED": f"127.0.0.1:{port}",
            "KAFKA_CONTROLLER_LISTEN": f"127.0.0.1:{controller}",
            "KAFKA_CONTROLLER_ADDRESS": f"127.0.0.1:{controller}",
        },
        log=folder / "server.log",
        ready=lambda: servers.answers(port, _API_VERSIONS, _CORRELATION),
    )


def another_broker_of(tmp_path: Path, first: servers.Server) -> servers.Server:
    """Returns a second broker of the cluster, not started. `first` is its controller.

    Its data is in tmp_path/kafka-2.
    """
    folder, port = tmp_path / "kafka-2", servers.free_port()
    folder.mkdir(parents=True, exist_ok=True)
    config, text = folder / "server.properties", Path(first.environment["KAFKA_CONFIG"]).read_text()
    for there, here in (
        ("process.roles=broker,controller", "process.roles=broker"),
        ("node.id=1", "node.id=2"),
        (",CONTROLLER://${env:KAFKA_CONTROLLER_LISTEN}", ""),
    ):
        if there not in text:
            raise ValueError(f"infra/kafka/server.properties: no {there}")
        text = text.replace(there, here)
    config.write_text(text)
    variables = {"KAFKA_CONFIG": str(config), "KAFKA_DATA_DIR": str(folder / "data")}
    variables |= dict.fromkeys(("KAFKA_LISTEN", "KAFKA_ADVERTISED"), f"127.0.0.1:{port}")
    return servers.Server(
        url=f"127.0.0.1:{port}",
        command=first.command,
        environment=first.environment | variables,
        log=folder / "server.log",
        ready=lambda: servers.answers(port, _API_VERSIONS, _CORRELATION),
    )


def kafka_server(tmp_path: Path) -> contextlib.AbstractContextManager[str]:
    """Yields the host:port of a running broker."""
    return servers.url_of(kafka_process(tmp_path))


def _libs() -> Path:
    home = os.environ.get("SPILLWAY_TEST_KAFKA_HOME") or str(servers.ROOT / ".spillway" / "kafka")
    libs = Path(home) / "libs"
    if not any(libs.glob("kafka_*.jar")):
        raise FileNotFoundError(
            f"{libs}: no Kafka jars; run `make setup`, or point SPILLWAY_TEST_KAFKA_HOME at a folder with libs/"
        )
    return libs

"""Packets of the native protocol at our revision: reads the client's, writes the server's.

Source: ClickHouse `src/Server/TCPHandler.cpp`, `src/Interpreters/ClientInfo.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spillway_clickhouse.wire import REVISION, Reader, ServerPacket, WireError, string, varint

_COMPLETE = 2  # QueryProcessingStage: the whole query runs here
_IMPORTANT = 1  # settings flag: an unknown name is an error
SERVER_NAME = "ClickHouse"
MIN_CLIENT_REVISION = 54453


@dataclass(frozen=True)
class Hello:
    """The client's first packet."""

    client: str
    revision: int
    database: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Query:
    """A query with its settings.

    `settings`: name to (value, whether an unknown name is an error).
    """

    text: str
    compressed: bool
    complete: bool
    settings: dict[str, tuple[str, bool]]


def read_hello(reader: Reader) -> Hello:
    client = reader.string()
    reader.varint(), reader.varint()  # version of the client
    return Hello(client, reader.varint(), reader.string(), reader.string(), reader.string())


def read_query(reader: Reader) -> Query:
    """Reads a Query packet after its type. Raises WireError."""
    reader.string()  # query id: ignored, because the engine assigns its own
    _skip_client_info(reader)
    settings: dict[str, tuple[str, bool]] = {}
    while name := reader.string():
        flags = reader.varint()
        settings[name] = (reader.string(), bool(flags & _IMPORTANT))
    reader.string()  # secret between servers of a cluster
    stage = reader.varint()
    compressed = bool(reader.varint())
    return Query(reader.string(), compressed, stage == _COMPLETE, settings)


def _skip_client_info(reader: Reader) -> None:
    if not reader.byte():
        return
    reader.string(), reader.string(), reader.string()  # initial user, query id, address
    reader.skip(8)  # initial query's start time
    if (interface := reader.byte()) != 1:
        raise WireError(f"client interface {interface}; must be 1 (TCP)")
    reader.string(), reader.string(), reader.string()  # OS user, host, client's name
    reader.varint(), reader.varint(), reader.varint()  # version, revision
    reader.string()  # quota key
    reader.varint(), reader.varint()  # distributed depth, patch version
    if reader.byte():  # OpenTelemetry trace id, span id, state, flags
        reader.skip(24)
        reader.string()
        reader.skip(1)
    reader.varint(), reader.varint(), reader.varint()  # parallel replicas


def hello(version: str) -> bytes:
    """Returns the server's Hello packet. `version`: of the engine, at least three numbers."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    return b"".join(
        [
            varint(ServerPacket.HELLO),
            string(SERVER_NAME),
            varint(major),
            varint(minor),
            varint(REVISION),
            string("UTC"),
            string("spillway"),
            varint(patch),
        ]
    )


def exception(code: int, message: str) -> bytes:
    """Returns an Exception packet with ClickHouse's error code and message."""
    return b"".join(
        [
            varint(ServerPacket.EXCEPTION),
            code.to_bytes(4, "little", signed=True),
            string("DB::Exception"),
            string(message),
            string(""),  # stack trace
            b"\0",  # no nested exception
        ]
    )


def progress(read: tuple[int, int], written: tuple[int, int]) -> bytes:
    """Returns a Progress packet.

    `read`, `written`: (rows, bytes). The total of rows is unknown, sent as 0.
    """
    numbers = (*read, 0, *written)
    return varint(ServerPacket.PROGRESS) + b"".join(map(varint, numbers))


PONG = varint(ServerPacket.PONG)
END_OF_STREAM = varint(ServerPacket.END_OF_STREAM)

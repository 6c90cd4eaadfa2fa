"""Reads and writes Data packets as blocks on a client's socket, compressed or not."""

from __future__ import annotations

import socket
from collections.abc import Callable

from spillway_clickhouse import wire
from spillway_clickhouse.native import Block, read_block
from spillway_clickhouse.wire import ClientPacket, Reader, ServerPacket, WireError

_RECEIVE = 1 << 20  # bytes requested from the socket at once


class ClientCancelled(Exception):
    """The client sent Cancel where its data was expected."""


class Channel:
    """A client's connection.

    Each query sets `compressed`, which applies to blocks in both directions.
    """

    def __init__(self, client: socket.socket):
        self.socket = client
        self.reader = Reader(lambda: client.recv(_RECEIVE))
        self.compressed = False

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_block(self, block: Block, types: tuple[str, ...] | None = None) -> None:
        """Sends the block as a Data packet.

        `types`: other names for the same types; by default the block's own.
        """
        data = wire.BLOCK_INFO + block.encode(types)
        if self.compressed:
            data = wire.compress(data)
        self.send(wire.varint(ServerPacket.DATA) + wire.string("") + data)

    def receive_blocks(self, take: Callable[[Block], None]) -> None:
        """Passes each block to `take`, up to the empty one.

        Raises ClientCancelled, WireError, EOFError.
        """
        while True:
            packet = self.reader.varint()
            if packet == ClientPacket.CANCEL:
                raise ClientCancelled
            if packet != ClientPacket.DATA:
                raise WireError(f"packet {packet} where Data was expected")
            self.reader.string()  # name of an external table; '' for rows of an INSERT
            block = self._read_block()
            if not block.names:
                return
            take(block)

    def _read_block(self) -> Block:
        reader = Reader(lambda: wire.read_frame(self.reader)) if self.compressed else self.reader
        wire.skip_block_info(reader)
        block = read_block(reader)
        if self.compressed and reader.buffered:
            raise WireError(f"{reader.buffered} bytes after the end of a compressed block")
        return block

"""Primitives of ClickHouse's native TCP protocol: numbers, strings, packet types, LZ4 frames.

Source: ClickHouse `src/Core/Protocol.h`, `src/Compression/CompressedReadBuffer*`, and
clickhouse-driver, whose compiled reader this module extends. Nothing here depends on the engine.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import lz4.block  # type: ignore[import-untyped]  # the library has no types
from clickhouse_cityhash.cityhash import CityHash128  # type: ignore[import-untyped]  # has no types
from clickhouse_driver.bufferedreader import BufferedReader

# From revision 54454 on, each column has a byte for its serialization, which the engine's `FORMAT
# Native` does not write. At this revision the bytes are the same on both sides.
REVISION = 54453

MAX_STRING = 64 << 20  # maximum bytes of a packet's own strings: names, passwords, query text
MAX_FRAME = 1 << 30  # maximum bytes of a compressed frame, packed or plain
FRAME = 1 << 20  # plain bytes per frame that we write

_METHOD_NONE, _METHOD_LZ4 = 0x02, 0x82
_FRAME_HEADER = struct.Struct("<BII")  # method, bytes of this header and the data, plain bytes
_CHECKSUM = 16
_HALF = (1 << 64) - 1


class ClientPacket(IntEnum):
    """Types of packets that a client sends."""

    HELLO = 0
    QUERY = 1
    DATA = 2
    CANCEL = 3
    PING = 4


class ServerPacket(IntEnum):
    """Types of packets that the server sends."""

    HELLO = 0
    DATA = 1
    EXCEPTION = 2
    PROGRESS = 3
    PONG = 4
    END_OF_STREAM = 5


class WireError(Exception):
    """The bytes do not follow the protocol. The connection cannot continue."""


class Reader(BufferedReader):
    """Buffered reader over `fill`, a function that returns the next bytes, or b'' at the end.

    It adds two things to clickhouse-driver's reader: skipping without a copy, and recording the
    bytes that were passed. Raises EOFError when the source ends inside a value.
    """

    # The compiled reader's own attributes
    buffer: bytearray
    current_buffer_size: int
    position: int

    def __init__(self, fill: Callable[[], bytes]):
        super().__init__(0)
        self._fill = fill
        self._recorded: list[bytes] | None = None
        self._mark = 0

    def read_into_buffer(self) -> None:
        """Replaces the used buffer with the next bytes. Raises EOFError at the end."""
        if self._recorded is not None:
            self._recorded.append(bytes(self.buffer[self._mark : self.current_buffer_size]))
            self._mark = 0
        chunk = self._fill()
        self.buffer = bytearray(chunk)
        self.current_buffer_size = len(chunk)
        if not chunk:
            raise EOFError("connection ended")

    @property
    def buffered(self) -> int:
        """The number of bytes taken from the source but not read yet."""
        return self.current_buffer_size - self.position

    def skip(self, size: int) -> None:
        """Skips `size` bytes."""
        while size:
            if not self.buffered:
                self.read_into_buffer()
                self.position = 0  # the compiled methods do this after each call too
            step = min(size, self.buffered)
            self.position += step
            size -= step

    def record(self) -> None:
        """Starts recording the bytes that are passed."""
        self._recorded, self._mark = [], self.position

    def recorded(self) -> bytes:
        """Stops recording and returns the bytes passed since `record`."""
        parts = self._recorded or []
        parts.append(bytes(self.buffer[self._mark : self.position]))
        self._recorded = None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def byte(self) -> int:
        return self.read_one()

    def varint(self) -> int:
        """Reads an unsigned LEB128 of at most 64 bits. Raises WireError when it is longer."""
        value = 0
        for shift in range(0, 70, 7):
            part = self.read_one()
            value |= (part & 0x7F) << shift
            if part < 0x80:
                return value
        raise WireError("varint longer than 10 bytes")

    def blob(self) -> bytes:
        size = self.varint()
        if size > MAX_STRING:
            raise WireError(f"string of {size} bytes; must be at most {MAX_STRING}")
        return self.read(size) if size else b""

    def string(self) -> str:
        return self.blob().decode("utf-8", "replace")

    def uint64(self) -> int:
        return int.from_bytes(self.read(8), "little")


def varint(value: int) -> bytes:
    """Encodes a non-negative number as unsigned LEB128."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(len(data)) + data


# Precedes each block on the wire. Field 1: is_overflows = 0; field 2: bucket_num = -1; end.
BLOCK_INFO = b"\x01\x00\x02\xff\xff\xff\xff\x00"


def skip_block_info(reader: Reader) -> None:
    """Skips the (field number, value) pairs before a block.

    Raises WireError for an unknown field.
    """
    while field := reader.varint():
        sizes = {1: 1, 2: 4}
        if field not in sizes:
            raise WireError(f"block info field {field}; must be 1 or 2")
        reader.skip(sizes[field])


def compress(data: bytes) -> bytes:
    """Compresses `data` into LZ4 frames, each with its CityHash128 checksum."""
    out = []
    for start in range(0, len(data), FRAME):
        plain = data[start : start + FRAME]
        packed = lz4.block.compress(plain, store_size=False)
        body = _FRAME_HEADER.pack(_METHOD_LZ4, len(packed) + _FRAME_HEADER.size, len(plain)) + packed
        out.append(_checksum(body))
        out.append(body)
    return b"".join(out)


def _checksum(data: bytes) -> bytes:
    """Returns CityHash128 in the order of the wire: high half first, each half little-endian."""
    value = CityHash128(data)
    return struct.pack("<QQ", value >> 64, value & _HALF)


def read_frame(reader: Reader) -> bytes:
    """Returns the next frame's plain data. Raises WireError for a bad checksum, size or method."""
    checksum = reader.read(_CHECKSUM)
    header = reader.read(_FRAME_HEADER.size)
    method, packed_size, plain_size = _FRAME_HEADER.unpack(header)
    if not _FRAME_HEADER.size <= packed_size <= MAX_FRAME or plain_size > MAX_FRAME:
        raise WireError(f"frame of {packed_size} bytes for {plain_size}; must be at most {MAX_FRAME}")
    size = packed_size - _FRAME_HEADER.size
    packed = reader.read(size) if size else b""
    if _checksum(header + packed) != checksum:
        raise WireError("checksum of a compressed frame does not match")
    if method == _METHOD_NONE:
        return packed
    if method != _METHOD_LZ4:
        raise WireError(f"compression method 0x{method:02x}; must be lz4 (0x82) or none (0x02)")
    try:
        return lz4.block.decompress(packed, uncompressed_size=plain_size)
    except lz4.block.LZ4BlockError as error:
        raise WireError(f"frame does not decompress: {error}") from error

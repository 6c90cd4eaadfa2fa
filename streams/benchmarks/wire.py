"""Protobuf as the filter writes it (wasm/core/src/otlp/wire.rs). Pure.

Fields may have any order, and lengths are known before the content is written.
"""

import struct


def varint(number: int) -> bytes:
    """Encodes a number that is not negative as a varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(tag: int, content: bytes) -> bytes:
    """Encodes a length-delimited field."""
    return varint(tag << 3 | 2) + varint(len(content)) + content


def number(tag: int, value: int) -> bytes:
    """Encodes a varint field."""
    return varint(tag << 3) + varint(value)


def fixed64(tag: int, value: int) -> bytes:
    """Encodes a field of 8 bytes."""
    return varint(tag << 3 | 1) + struct.pack("<Q", value)


def fixed32(tag: int, value: int) -> bytes:
    """Encodes a field of 4 bytes."""
    return varint(tag << 3 | 5) + struct.pack("<I", value)


def attribute(tag: int, key: str, value: str | int | float) -> bytes:
    """Encodes a KeyValue as field `tag`."""
    if isinstance(value, str):
        content = sized(1, value.encode())
    elif isinstance(value, int):
        content = number(3, value)
    else:
        content = varint(4 << 3 | 1) + struct.pack("<d", value)
    return sized(tag, sized(1, key.encode()) + sized(2, content))

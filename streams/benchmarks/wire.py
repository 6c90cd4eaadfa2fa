"""Protobuf as the filter writes it (wasm/core/src/otlp/wire.rs): fields in any order, lengths known before. Pure."""

import struct


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def sized(tag: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(tag << 3 | 2) + varint(len(content)) + content


def number(tag: int, value: int) -> bytes:
    """A varint field."""
    return varint(tag << 3) + varint(value)


def fixed64(tag: int, value: int) -> bytes:
    return varint(tag << 3 | 1) + struct.pack("<Q", value)


def fixed32(tag: int, value: int) -> bytes:
    return varint(tag << 3 | 5) + struct.pack("<I", value)


def attribute(tag: int, key: str, value: str | int | float) -> bytes:
    """A KeyValue as field `tag`."""
    if isinstance(value, str):
        content = sized(1, value.encode())
    elif isinstance(value, int):
        content = number(3, value)
    else:
        content = varint(4 << 3 | 1) + struct.pack("<d", value)
    return sized(tag, sized(1, key.encode()) + sized(2, content))

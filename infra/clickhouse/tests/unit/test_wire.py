"""Wire codec: numbers, strings, block info and frames, whole and cut at every place."""

import random
from collections.abc import Callable

import pytest
from spillway_clickhouse import wire
from spillway_clickhouse.wire import Reader, WireError


def pieces(data: bytes, size: int) -> Callable[[], bytes]:
    """Returns a source that yields `size` bytes at a time."""
    parts = iter([data[at : at + size] for at in range(0, len(data), size)])
    return lambda: next(parts, b"")


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**32, 2**63, 2**64 - 1])
def test_varint_comes_back(value):
    """A varint reads back as written."""
    assert Reader(pieces(wire.varint(value), 1)).varint() == value


def test_varint_without_end_is_an_error():
    """Eleven bytes with the continuation bit are not a number."""
    with pytest.raises(WireError, match="varint longer"):
        Reader(pieces(b"\xff" * 11, 11)).varint()


@pytest.mark.parametrize("text", ["", "x", "ü" * 200])
def test_string_comes_back(text):
    """A string reads back as written, wherever its bytes are cut."""
    assert Reader(pieces(wire.string(text), 3)).string() == text


def test_string_of_absurd_length_is_refused_before_memory_is_taken():
    """A length above the limit is an error instead of an allocation."""
    with pytest.raises(WireError, match="must be at most"):
        Reader(pieces(wire.varint(1 << 40), 9)).string()


def test_end_inside_a_value():
    """A source that ends inside a value raises EOFError."""
    with pytest.raises(EOFError):
        Reader(pieces(wire.string("abcdef")[:3], 9)).string()


def test_recording_keeps_what_was_passed():
    """`recorded` returns exactly the bytes since `record`, over many refills and kinds of reads."""
    rng = random.Random(7)
    texts = [b"s" * rng.randint(0, 40) for _ in range(500)]
    body = b"".join(map(wire.string, texts)) + bytes(4000) + (5).to_bytes(8, "little")
    for size in (1, 7, 100, 10_000):
        reader = Reader(pieces(b"before" + body + b"after", size))
        reader.skip(6)
        reader.record()
        assert reader.read_strings(500) == tuple(texts)
        reader.skip(4000)
        assert reader.uint64() == 5
        assert reader.recorded() == body
        assert reader.read(5) == b"after"


def test_block_info():
    """The pairs before a block are skipped. An unknown field is an error."""
    reader = Reader(pieces(wire.BLOCK_INFO + b"!", 100))
    wire.skip_block_info(reader)
    assert reader.read(1) == b"!"
    with pytest.raises(WireError, match="field 9"):
        wire.skip_block_info(Reader(pieces(b"\x09\x00", 2)))


@pytest.mark.parametrize("size", [0, 1, 1000, 2 * wire.FRAME + 5])
def test_frames_come_back(size):
    """Compressed data reads back, over as many frames as it needs."""
    data = random.Random(1).randbytes(size)
    reader, plain = Reader(pieces(wire.compress(data), 4096)), b""
    while len(plain) < size:
        plain += wire.read_frame(reader)
    assert plain == data


def test_a_damaged_frame_is_an_error():
    """The checksum finds a single flipped bit."""
    frame = bytearray(wire.compress(b"hello" * 100))
    frame[-1] ^= 1
    with pytest.raises(WireError, match="checksum"):
        wire.read_frame(Reader(pieces(bytes(frame), 4096)))

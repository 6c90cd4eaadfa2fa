"""Reads the codecs of record batches from a broker's segment files."""

import struct
from collections.abc import Iterator
from pathlib import Path

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
# The fields are baseOffset, batchLength, partitionLeaderEpoch, magic, crc, attributes. The lowest
# three bits of attributes are the codec (https://kafka.apache.org/documentation/#recordbatch).
_HEADER = struct.Struct(">qiibIh")


def codecs(data: Path, topic: str) -> set[str]:
    """Returns the codecs of all batches of a topic. `data` is the broker's log.dirs."""
    segments = list(data.glob(f"{topic}-*/*.log"))
    assert segments, f"{data}: no segment of {topic}"
    return {
        CODECS[attributes & 7] for segment in segments for attributes in _attributes(segment.read_bytes())
    }


def _attributes(segment: bytes) -> Iterator[int]:
    position = 0
    while position + _HEADER.size <= len(segment):
        _, length, _, magic, _, attributes = _HEADER.unpack_from(segment, position)
        if magic != 2:
            return  # the unused, zeroed rest of a segment
        yield attributes
        position += 12 + length

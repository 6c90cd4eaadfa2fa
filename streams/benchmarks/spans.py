"""Messages of otlp_spans as collectors write them, by the million. Pure.

They are made of templates that are filled in with numpy. A message is what one collector batch
leaves for one partition: about 1 000 spans, grouped by the proxy that made them. Traces are spread
over several messages, because every proxy sends when its own batch is due. Times are those of a
live system with a steady rate: log time advances by 1 s per `rate` spans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import templates
import wire
from spillway_contracts import names

MESSAGE_SPANS = 1_000
_BLOCK_MESSAGES = 24
_VARIANTS = 24
# A proxy's batch waits at most this long, including 200 ms in the collector.
_SENDING_US = 400_000
_SCOPE = wire.sized(1, wire.sized(1, b"spillway-filter") + wire.sized(2, b"0.1.0"))
_HOLES = {"trace_id": 16, "span_id": 8, "parent_id": 8, "start": 8, "end": 8, "number": 6}


@dataclass(frozen=True)
class Message:
    """One record of otlp_spans."""

    value: bytes
    spans: int
    at_us: int  # log time since the log's beginning, microseconds


@dataclass(frozen=True)
class Truth:
    """What must come out: every server span is a call, every client span is an edge."""

    spans: int = 0
    calls: int = 0
    edges: int = 0
    traces: int = 0

    def __add__(self, other: "Truth") -> "Truth":
        return Truth(
            self.spans + other.spans,
            self.calls + other.calls,
            self.edges + other.edges,
            self.traces + other.traces,
        )


class Shop:
    """The templates of all requests as arrays, one row per span.

    The spans of a trace are neighbours.
    """

    def __init__(
        self,
        seed: int = 1,
        requests: Sequence[templates.Visit] = templates.REQUESTS,
        clusters: Sequence[str] = templates.CLUSTERS,
    ) -> None:
        found = templates.traces(seed, _VARIANTS, requests, clusters)
        rows = [row for trace in found for row in trace]
        senders = sorted({row.sender for row in rows})
        self.length = np.array([len(trace) for trace in found])
        self.first = np.cumsum(self.length) - self.length
        self.size = np.array([len(row.encoded) for row in rows])
        self.encoded = np.zeros((len(rows), self.size.max()), dtype=np.uint8)
        for i, row in enumerate(rows):
            self.encoded[i, : self.size[i]] = np.frombuffer(row.encoded, dtype=np.uint8)
        self.holes = {name: np.array([row.holes.get(name, -1) for row in rows]) for name in _HOLES}
        self.start_us = np.array([row.start_us for row in rows])
        self.end_us = np.array([row.end_us for row in rows])
        self.parent = np.array([row.parent for row in rows])
        self.inbound = np.array([row.inbound for row in rows])
        self.sender = np.array([senders.index(row.sender) for row in rows])
        self.resources = [_resource(*sender) for sender in senders]


def _resource(service: str, cluster: str) -> bytes:
    texts = {names.SPAN_ATTRIBUTE_SERVICE: service, names.SPAN_ATTRIBUTE_CLUSTER: cluster}
    return wire.sized(1, b"".join(wire.attribute(1, key, text) for key, text in texts.items()))


class Partition:
    """The endless log of one partition of otlp_spans.

    `rate`: spans per second of log time. `message_spans`: spans of each message.
    """

    def __init__(
        self, shop: Shop, seed: int, epoch_us: int, rate: float, message_spans: int = MESSAGE_SPANS
    ) -> None:
        self._shop, self._epoch_us, self._rate = shop, epoch_us, rate
        self._message_spans = message_spans
        self._dice = np.random.default_rng(seed)
        self._at_us = 0.0
        self.truth = Truth()

    def messages(self, spans: int) -> Iterator[Message]:
        """Yields messages with `spans` spans or a few more, because traces are kept whole."""
        target = self.truth.spans + spans
        while self.truth.spans < target:
            left = target - self.truth.spans
            yield from self._block(min(left, _BLOCK_MESSAGES * self._message_spans))

    def _block(self, spans: int) -> list[Message]:
        shop, dice = self._shop, self._dice
        kinds = dice.integers(len(shop.length), size=max(int(spans / shop.length.mean()), 1))
        trace = np.repeat(np.arange(len(kinds)), shop.length[kinds])
        n = len(trace)
        begin = np.cumsum(shop.length[kinds]) - shop.length[kinds]
        row = shop.first[kinds][trace] + np.arange(n) - begin[trace]
        length_us = n / self._rate * 1e6
        started = self._epoch_us + self._at_us + dice.uniform(0, length_us, len(kinds)) - _SENDING_US
        filled = self._fill(row, trace, begin, started.astype(np.int64))
        order, message = self._order(row, trace, started)
        self.truth += Truth(n, int(shop.inbound[row].sum()), int((~shop.inbound[row]).sum()), len(kinds))
        ends = self._at_us + (np.arange(message[-1] + 1) + 1) * (length_us / (message[-1] + 1))
        self._at_us += length_us
        return list(self._pack(filled[order], row[order], message, ends.astype(np.int64)))

    def _fill(self, row: np.ndarray, trace: np.ndarray, begin: np.ndarray, started: np.ndarray) -> np.ndarray:
        """Returns the bytes of the spans, uint8 of shape (n, longest)."""
        shop, dice, n = self._shop, self._dice, len(row)
        span_id = dice.integers(1, 2**63, size=n).astype(">u8")
        digits = dice.integers(0, 10, size=(n, _HOLES["number"]), dtype=np.uint8) + ord("0")
        values = {
            "trace_id": dice.integers(0, 256, size=(len(begin), 16), dtype=np.uint8)[trace],
            "span_id": _bytes(span_id),
            "parent_id": _bytes(span_id[begin[trace] + np.maximum(shop.parent[row], 0)]),
            "start": _bytes((started[trace] + shop.start_us[row]).astype("<u8") * 1000),
            "end": _bytes((started[trace] + shop.end_us[row]).astype("<u8") * 1000),
            "number": digits,
        }
        out = shop.encoded[row]
        for name, width in _HOLES.items():
            at = shop.holes[name][row]
            has = np.flatnonzero(at >= 0)
            out[has[:, None], at[has, None] + np.arange(width)] = values[name][has]
        return out

    def _order(
        self, row: np.ndarray, trace: np.ndarray, started: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the order of the spans, and the message of each span in that order.

        Spans are ordered by message, sender and arrival.
        """
        arrival = started[trace] + self._shop.end_us[row] + self._dice.uniform(0, _SENDING_US, len(row))
        rank = np.empty(len(row), dtype=np.int64)
        rank[np.argsort(arrival)] = np.arange(len(row))
        message = rank // self._message_spans
        order = np.lexsort((arrival, self._shop.sender[row], message))
        return order, message[order]

    def _pack(
        self, filled: np.ndarray, row: np.ndarray, message: np.ndarray, ends: np.ndarray
    ) -> Iterator[Message]:
        shop, size = self._shop, self._shop.size[row]
        flat = filled[np.arange(filled.shape[1]) < size[:, None]].tobytes()
        byte = np.concatenate([[0], np.cumsum(size)])
        changes = np.flatnonzero(np.diff(message * len(shop.resources) + shop.sender[row])) + 1
        groups: list[list[bytes]] = [[] for _ in ends]
        for first, last in zip([0, *changes.tolist()], [*changes.tolist(), len(row)], strict=True):
            scope = wire.sized(2, _SCOPE + flat[byte[first] : byte[last]])
            groups[message[first]].append(wire.sized(1, shop.resources[shop.sender[row[first]]] + scope))
        counts = np.bincount(message).tolist()
        for value, count, at_us in zip(groups, counts, ends.tolist(), strict=True):
            yield Message(b"".join(value), count, at_us)


def _bytes(numbers: np.ndarray) -> np.ndarray:
    """Returns an array of 8-byte numbers as uint8 of shape (n, 8)."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8)

"""The spans of a shop's requests as the filter encodes them, with holes to be filled in. Pure.

The holes are for ids, times and the number in the path. Attributes and their order are those of
wasm/core/src/otlp (arrival.rs, then ending.rs), about 600 bytes a span.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import wire
from spillway_contracts import names

CLUSTERS = ("c-one", "c-two", "c-three")
_SPAN_ATTRIBUTE = 9
_RULESET = 41
_FAILED_SHARE = 0.02
_REMOTE_SHARE = 0.2


class Visit(NamedTuple):
    """One request to a service, and the requests that it makes one after the other."""

    service: str
    method: str
    template: str
    calls: tuple["Visit", ...] = ()


_STOCK = Visit("stock", "GET", "/levels/{id}")
_PRICE = Visit("price", "GET", "/prices/{id}")
_USER = Visit("user", "GET", "/users/{id}")
_CART = Visit("cart", "POST", "/carts/{id}/items", (_STOCK, _PRICE))
REQUESTS = (
    Visit("gateway", "GET", "/products/{id}", (Visit("catalogue", "GET", "/products/{id}", (_STOCK, _PRICE)),)),
    Visit("gateway", "POST", "/carts/{id}", (_USER, _CART)),
    Visit("gateway", "POST", "/orders/{id}", (_USER, Visit("order", "PUT", "/orders/{id}", (_CART,)))),
    Visit("gateway", "GET", "/users/{id}/orders", (_USER, Visit("order", "GET", "/orders/of/{id}", (_PRICE,)))),
)  # fmt: skip


@dataclass(frozen=True)
class Template:
    """One span: its bytes as a field of ScopeSpans, and the positions of its holes.

    `holes` maps the name of a hole to its first byte. A hole that the span does not have is absent.
    """

    encoded: bytes
    holes: dict[str, int]
    sender: tuple[str, str]  # service and cluster of the proxy that makes it
    inbound: bool
    start_us: int  # since the beginning of the trace, microseconds
    end_us: int
    parent: int  # position of the parent in the trace; -1 for the root


@dataclass
class _Writer:
    out: bytearray = field(default_factory=bytearray)
    holes: dict[str, int] = field(default_factory=dict)

    def hole(self, name: str, encoded: bytes, width: int) -> None:
        """Appends a field whose last `width` bytes will be filled in."""
        self.out += encoded
        self.holes[name] = len(self.out) - width

    def put(self, key: str, value: str | int | float) -> None:
        self.out += wire.attribute(_SPAN_ATTRIBUTE, key, value)


def traces(
    seed: int, variants: int, requests: Sequence[Visit] = REQUESTS, clusters: Sequence[str] = CLUSTERS
) -> list[list[Template]]:
    """Returns `variants` traces of every kind of request, which begin in any of the clusters.

    Durations, places and outcomes differ. The ids are filled in later.
    """
    dice = random.Random(seed)
    return [_trace(dice, request, clusters) for request in requests for _ in range(variants)]


def _trace(dice: random.Random, request: Visit, clusters: Sequence[str]) -> list[Template]:
    found: list[Template] = []
    _serve(dice, clusters, request, dice.choice(clusters), None, -1, 0, found)
    return found


def _serve(
    dice: random.Random, clusters: Sequence[str], visit: Visit, cluster: str, caller: tuple[str, str] | None,
    parent: int, start_us: int, found: list[Template],
) -> tuple[int, bool]:  # fmt: skip
    """Appends the inbound span and all spans below it.

    Returns the span's duration in microseconds, and whether it failed.
    """
    position = len(found)
    found.append(None)  # type: ignore[arg-type]
    now = start_us + dice.randrange(300, 4_000)
    for called in visit.calls:
        now += _call(dice, clusters, visit, called, cluster, position, now, found) + dice.randrange(
            200, 2_000
        )
    failed = dice.random() < _FAILED_SHARE
    found[position] = _inbound(dice, visit, cluster, caller, parent, start_us, now, failed)
    return now - start_us, failed


def _call(
    dice: random.Random, clusters: Sequence[str], visit: Visit, called: Visit, cluster: str, parent: int,
    start_us: int, found: list[Template],
) -> int:  # fmt: skip
    """Appends the outbound span and all spans below it. Returns its duration in microseconds."""
    others = [name for name in clusters if name != cluster]
    remote = dice.random() < _REMOTE_SHARE and bool(others)
    there = dice.choice(others) if remote else cluster
    network_us = dice.randrange(20_000, 40_000) if remote else dice.randrange(150, 900)
    position = len(found)
    found.append(None)  # type: ignore[arg-type]
    begun = start_us + network_us // 2
    served_us, failed = _serve(
        dice, clusters, called, there, (cluster, visit.service), position, begun, found
    )
    end_us = start_us + served_us + network_us
    sender = (visit.service, cluster)
    found[position] = _outbound(dice, called, sender, there, parent, start_us, end_us, network_us, failed)
    return end_us - start_us


def _begin(visit: Visit, direction: str, kind: int, parent: int, start_us: int) -> _Writer:
    writer = _Writer()
    writer.hole("trace_id", wire.sized(1, bytes(16)), 16)
    writer.hole("span_id", wire.sized(2, bytes(8)), 8)
    if parent >= 0:
        writer.hole("parent_id", wire.sized(4, bytes(8)), 8)
    writer.out += wire.sized(5, f"{visit.method} {visit.template}".encode()) + wire.number(6, kind)
    writer.hole("start", wire.fixed64(7, start_us * 1000), 8)
    writer.out += wire.fixed32(16, 1)
    writer.put(names.SPAN_ATTRIBUTE_DIRECTION, direction)
    writer.put(names.OTEL_ATTRIBUTE_HTTP_METHOD, visit.method)
    before, _, after = visit.template.partition("{id}")
    encoded = wire.attribute(_SPAN_ATTRIBUTE, names.OTEL_ATTRIBUTE_URL_PATH, f"{before}000000{after}")
    writer.hole("number", encoded, 6 + len(after))
    writer.put(names.OTEL_ATTRIBUTE_URL_SCHEME, "http")
    writer.put(names.OTEL_ATTRIBUTE_SERVER_ADDRESS, visit.service)
    writer.put(names.OTEL_ATTRIBUTE_SERVER_PORT, 8080)
    writer.put(names.SPAN_ATTRIBUTE_CLASS, f"{visit.service} {visit.method} {visit.template}")
    return writer


def _inbound(
    dice: random.Random, visit: Visit, cluster: str, caller: tuple[str, str] | None, parent: int, start_us: int,
    end_us: int, failed: bool,
) -> Template:  # fmt: skip
    writer = _begin(visit, names.VALUE_DIRECTION_INBOUND, 2, parent, start_us)
    writer.put(names.OTEL_ATTRIBUTE_HTTP_ROUTE, visit.template)
    load = dice.randrange(1, 40)
    writer.put(names.SPAN_ATTRIBUTE_IN_FLIGHT, load)
    writer.put(names.SPAN_ATTRIBUTE_ARRIVAL_RATE, float(dice.randrange(50, 900)))
    writer.put(names.SPAN_ATTRIBUTE_CLASS_IN_FLIGHT, dice.randrange(1, load + 1))
    writer.put(names.SPAN_ATTRIBUTE_CLASS_ARRIVAL_RATE, float(dice.randrange(10, 50)))
    if caller:
        writer.put(names.SPAN_ATTRIBUTE_SOURCE_CLUSTER, caller[0])
        writer.put(names.SPAN_ATTRIBUTE_SOURCE_SERVICE, caller[1])
    writer.put(names.SPAN_ATTRIBUTE_DESTINATION_CLUSTER, cluster)
    writer.put(names.SPAN_ATTRIBUTE_DESTINATION_SERVICE, visit.service)
    _end(dice, writer, end_us, failed)
    return _template(writer, (visit.service, cluster), True, start_us, end_us, parent)


def _outbound(
    dice: random.Random, called: Visit, sender: tuple[str, str], there: str, parent: int, start_us: int, end_us: int,
    network_us: int, failed: bool,
) -> Template:  # fmt: skip
    writer = _begin(called, names.VALUE_DIRECTION_OUTBOUND, 3, parent, start_us)
    writer.put(names.OTEL_ATTRIBUTE_URL_TEMPLATE, called.template)
    writer.put(names.SPAN_ATTRIBUTE_SOURCE_CLUSTER, sender[1])
    writer.put(names.SPAN_ATTRIBUTE_SOURCE_SERVICE, sender[0])
    writer.put(names.SPAN_ATTRIBUTE_DESTINATION_SERVICE, called.service)
    writer.put(names.SPAN_ATTRIBUTE_DESTINATION_CLUSTER, there)
    _end(dice, writer, end_us, failed, network_us, end_us - start_us - network_us)
    return _template(writer, sender, False, start_us, end_us, parent)


def _end(
    dice: random.Random, writer: _Writer, end_us: int, failed: bool, network_us: int = -1, served_us: int = -1
) -> None:
    writer.put(names.OTEL_ATTRIBUTE_PROTOCOL_VERSION, "1.1")
    writer.hole("end", wire.fixed64(8, end_us * 1000), 8)
    writer.put(names.OTEL_ATTRIBUTE_HTTP_STATUS, 503 if failed else 200)
    writer.put(names.OTEL_ATTRIBUTE_REQUEST_SIZE, dice.randrange(4_000))
    writer.put(names.OTEL_ATTRIBUTE_RESPONSE_SIZE, dice.randrange(60_000))
    if network_us >= 0:
        writer.put(names.SPAN_ATTRIBUTE_RULESET_VERSION, _RULESET)
        writer.put(names.SPAN_ATTRIBUTE_NETWORK_TIME, network_us)
        writer.put(names.SPAN_ATTRIBUTE_SERVICE_TIME, served_us)
    if failed:
        writer.put(names.SPAN_ATTRIBUTE_RESPONSE_FLAGS, "UH")
        writer.put(names.OTEL_ATTRIBUTE_ERROR_TYPE, "503")
        writer.out += wire.sized(15, wire.number(3, 2))


def _template(
    writer: _Writer, sender: tuple[str, str], inbound: bool, start_us: int, end_us: int, parent: int
) -> Template:
    encoded = wire.sized(2, bytes(writer.out))
    moved = len(encoded) - len(writer.out)
    holes = {name: at + moved for name, at in writer.holes.items()}
    return Template(encoded, holes, sender, inbound, start_us, end_us, parent)

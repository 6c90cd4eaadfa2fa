"""Spans of closed traces -> calls with exclusive time, and edges. Pure.

exclusive time = duration of the server span minus the union of the intervals of its direct child
calls, clipped to it (SLATE 4.2). Internal spans are folded into their server span; so are an
application's server span under its proxy's, and an application's client span over its proxy's.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spillway_streams import columns
from spillway_streams.classify import Templates, is_class_id
from spillway_streams.columns import Columns
from spillway_streams.counters import Counters
from spillway_streams.spans import Kind, Span

_MAX_DEPTH = 64


@dataclass(frozen=True)
class Link:
    """One trace as calls: servers, clients, and who belongs to whom (indices into these lists)."""

    servers: list[Span]
    clients: list[Span]
    owner: list[int]  # per client: the server that made it, -1 when unknown
    answer: list[int]  # per client: the server that served it, -1 when unknown
    retried: list[bool]  # per client: several servers got it
    caller: list[Span | None]  # per server: the span that called it
    direct: list[tuple[int, Span]]  # calls that have no client span: (owner, server span)


def _unique(spans: Iterable[Span], counters: Counters) -> list[Span]:
    kept: dict[tuple[str, Kind], Span] = {}
    for span in sorted(spans, key=lambda s: (s.started_us, s.span_id, s.kind, s.service, s.duration_us)):
        if (span.span_id, span.kind) in kept:
            counters.add("duplicate_span")
        else:
            kept[span.span_id, span.kind] = span
    return list(kept.values())


def _fold(spans: list[Span]) -> list[Span]:
    """Turns the inner of two nested server spans, and the outer of two nested client spans, of one
    service into internal ones: a proxy and its application each made a span for one request."""
    servers = {s.span_id: s for s in spans if s.kind is Kind.SERVER}
    outer = {s.parent_id: s for s in spans if s.kind is Kind.CLIENT}
    folded = []
    for span in spans:
        nested: Span | None = None
        if span.kind is Kind.SERVER and span.parent_id != span.span_id:
            nested = servers.get(span.parent_id)
        elif span.kind is Kind.CLIENT:
            nested = outer.get(span.span_id)
        is_inner = nested is not None and nested.service == span.service and nested.cluster == span.cluster
        folded.append(span._replace(kind=Kind.INTERNAL) if is_inner else span)
    return folded


def link(trace: Iterable[Span], counters: Counters) -> Link:
    """Pairs client and server spans of one trace. A span id may be shared by a client span and its
    server span (B3)."""
    spans = _fold(_unique(trace, counters))
    servers = [span for span in spans if span.kind is Kind.SERVER]
    clients = [span for span in spans if span.kind is Kind.CLIENT]
    server_at = {span.span_id: i for i, span in enumerate(servers)}
    client_at = {span.span_id: i for i, span in enumerate(clients)}
    internal = {span.span_id: span for span in spans if span.kind is Kind.INTERNAL}

    def owner_of(span: Span) -> int:
        parent = span.parent_id
        for _ in range(_MAX_DEPTH):
            if parent in server_at:
                return server_at[parent]
            if parent not in internal:
                return -1
            parent = internal[parent].parent_id
        return -1

    answer, caller, direct = [-1] * len(clients), [], []
    retried = [False] * len(clients)
    for i, span in enumerate(servers):
        called_by = client_at.get(span.parent_id, client_at.get(span.span_id))
        if called_by is not None:
            retried[called_by] = answer[called_by] >= 0
            answer[called_by] = i  # of several attempts the last one, servers are in time order
            caller.append(clients[called_by])
        elif (owner := owner_of(span)) >= 0 and servers[owner].service != span.service:
            direct.append((owner, span))
            caller.append(servers[owner])
        else:
            caller.append(None)
    return Link(servers, clients, [owner_of(span) for span in clients], answer, retried, caller, direct)


def covered_us(parents: np.ndarray, start: np.ndarray, end: np.ndarray, n: int) -> np.ndarray:
    """Length of the union of intervals per parent.

    parents, start, end: int64 of one length, start and end relative to the parent's start, in
    0..2^32 microseconds; n: number of parents. Returns int64 of length n.
    """
    order = np.lexsort((end, start, parents))
    parents, start, end = parents[order], start[order], end[order]
    base = parents << 33  # one running maximum over all parents: each parent has its own range
    reached = np.maximum.accumulate(base + end) if len(end) else end
    previous = np.concatenate([[-1], reached[:-1]]) if len(end) else end
    gained = np.maximum(base + end, previous) - np.maximum(base + start, previous)
    total = np.zeros(n, dtype=np.int64)
    np.add.at(total, parents, np.where(previous < base, end - start, np.maximum(gained, 0)))
    return total


def exclusive_us(links: list[Link]) -> np.ndarray:
    """Exclusive time of every server of all links, in order, microseconds."""
    parents, start, end, lengths = [], [], [], []
    first = 0
    for one in links:
        lengths.extend(server.duration_us for server in one.servers)
        calls = [(owner, span) for owner, span in zip(one.owner, one.clients, strict=True) if owner >= 0]
        for owner, span in calls + one.direct:
            offset = span.started_us - one.servers[owner].started_us
            parents.append(first + owner)
            start.append(offset)
            end.append(offset + span.duration_us)
        first += len(one.servers)
    duration = np.array(lengths, dtype=np.int64)
    index = np.array(parents, dtype=np.int64)
    bounds = duration[index] if len(index) else index
    clipped_start = np.clip(np.array(start, dtype=np.int64), 0, bounds)
    clipped_end = np.clip(np.array(end, dtype=np.int64), 0, bounds)
    return duration - covered_us(index, clipped_start, clipped_end, len(duration))


def calls_and_edges(
    traces: list[list[Span]], templates: Templates, counters: Counters
) -> tuple[Columns, Columns]:
    """Rows of the tables calls and edges of these closed traces, in time order."""
    links = [link(trace, counters) for trace in traces]
    exclusive = iter(exclusive_us(links).tolist())
    calls, edges = [], []
    for one in links:
        classes = [_class_of(span, templates) for span in one.servers]
        for span, caller, class_id in zip(one.servers, one.caller, classes, strict=True):
            own_us = next(exclusive)
            if class_id:
                calls.append(_call_row(span, caller, class_id, own_us, counters))
            else:
                counters.add("server_span_without_class")
        for i, span in enumerate(one.clients):
            row = _edge_row(span, one, i, classes, templates, counters)
            if row:
                edges.append(row)
    return (
        columns.sort(columns.from_rows(columns.CALLS, calls), "started_at", "trace_id", "span_id"),
        columns.sort(columns.from_rows(columns.EDGES, edges), "started_at", "trace_id", "span_id"),
    )


def _class_of(span: Span, templates: Templates) -> str | None:
    if span.class_id and is_class_id(span.class_id):
        return span.class_id
    return templates.classify(span.service, span.method, span.path, span.route)


def _source(span: Span, caller: Span | None, counters: Counters) -> tuple[str, str]:
    """Cluster and service that called; ('', '') for an entry call."""
    if span.source_service:
        return span.source_cluster or (caller.cluster if caller else span.cluster), span.source_service
    if caller is not None:
        return caller.cluster, caller.service
    if span.parent_id:
        counters.add("entry_with_unknown_parent")
    return "", ""


def _call_row(span: Span, caller: Span | None, class_id: str, own_us: int, counters: Counters) -> tuple:
    source_cluster, source_service = _source(span, caller, counters)
    return (
        span.started_us, span.trace_id, span.span_id, span.cluster, span.service, class_id,
        source_cluster, source_service, span.duration_us, own_us, span.in_flight, span.arrival_rate,
        span.request_bytes, span.response_bytes, span.status, span.failed, span.adjusted_count,
    )  # fmt: skip


def _edge_row(
    span: Span, one: Link, i: int, classes: list[str | None], templates: Templates, counters: Counters
) -> tuple | None:
    answer = one.servers[one.answer[i]] if one.answer[i] >= 0 else None
    service = answer.service if answer else span.destination_service
    class_id: str | None = span.class_id if is_class_id(span.class_id) else None
    if not class_id and answer:
        class_id = classes[one.answer[i]]
    if not class_id and service:
        class_id = templates.classify(service, span.method, span.path, span.route)
    if not class_id:
        counters.add("client_span_without_destination_class")
        return None
    owner = one.owner[i]
    if owner < 0:
        counters.add("client_span_without_server_span")
    network = span.network_us
    # After a retry the client's time holds the tries before the answered one and the waits between them.
    if network is None and answer and not span.resends and not one.retried[i]:
        network = max(span.duration_us - answer.duration_us, 0)
    return (
        span.started_us, span.trace_id, span.span_id, span.cluster, span.service,
        (classes[owner] if owner >= 0 else None) or "",
        span.destination_cluster or (answer.cluster if answer else span.cluster),
        service or class_id.split(" ", 1)[0], class_id, span.duration_us, -1 if network is None else network,
        span.request_bytes, span.response_bytes, span.status, span.failed, span.adjusted_count,
        span.ruleset_version,
    )  # fmt: skip

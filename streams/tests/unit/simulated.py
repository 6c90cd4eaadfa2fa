"""Simulated calls of one service and their child calls.

The time of a call grows with the requests in flight, about as in an M/M/c queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from spillway_streams.batches.strings import Strings
from spillway_streams.classes.decide import Decider
from spillway_streams.classes.memory import Memory
from spillway_streams.classes.options import Options
from spillway_streams.process.counters import Counters

SERVICE = "shop"
Times = Callable[[np.random.Generator, np.ndarray], np.ndarray]  # (in_flight) -> ms


def exponential(ms: float) -> Times:
    """Mean time `ms` in an idle service, longer in proportion to the requests in flight."""
    return lambda rng, inside: rng.exponential(ms, len(inside)) * (1 + 0.2 * inside)


def lognormal(ms: float, sigma: float) -> Times:
    return lambda rng, inside: ms * np.exp(rng.normal(0, sigma, len(inside))) * (1 + 0.2 * inside)


@dataclass
class Kind:
    """The requests of one template. `children`: callee class -> probability of a call."""

    template: str
    times: Times
    n: int = 1500
    load: tuple[int, int] = (1, 12)
    children: dict[str, float] = field(default_factory=dict)
    method: str = "GET"
    more: Callable[[np.random.Generator, np.ndarray], dict[str, np.ndarray]] = lambda rng, ms: {}


def batches(kinds: list[Kind], seed: int, service: str = SERVICE, weight: float = 1.0) -> tuple[dict, dict]:
    """Returns (calls, edges) in random order."""
    rng = np.random.default_rng(seed)
    rows, made = [], []
    for kind in kinds:
        inside = rng.integers(*kind.load, kind.n).astype("f8")
        ms = kind.times(rng, inside)
        ids = np.array([rng.bytes(16).hex() for _ in range(kind.n)], object)
        rows.append((kind, inside, ms, ids, kind.more(rng, ms)))
        for callee, share in kind.children.items():
            made.append((kind, callee, ids[rng.random(kind.n) < share]))
    return _calls(rows, rng, service, weight), _edges(made, service, weight)


def _calls(rows: list, rng: np.random.Generator, service: str, weight: float) -> dict:
    n = sum(len(ids) for *_, ids, _ in rows)
    order = rng.permutation(n)
    ids = np.concatenate([ids for *_, ids, _ in rows])
    batch = {
        "started_at": np.sort(rng.integers(0, 60_000_000, n)) + 1_700_000_000_000_000,
        "trace_id": ids[order],
        "span_id": np.array([trace_id[:16] for trace_id in ids], object)[order],
        "class": Strings.of(f"{service} {k.method} {k.template}" for k, _, ms, *_ in rows for _ in ms)[order],
        "exclusive_us": (np.concatenate([ms for _, _, ms, *_ in rows]) * 1000).astype("i8")[order],
        "in_flight": np.concatenate([inside for _, inside, *_ in rows]).astype("i8")[order],
        "failed": np.zeros(n, bool),
        "adjusted_count": np.full(n, weight),
    }
    defaults = {"request_bytes": 100, "response_bytes": 1000, "status": 200}
    for name, value in defaults.items():
        batch[name] = np.concatenate([more.get(name, np.full(len(ms), value)) for _, _, ms, _, more in rows])[
            order
        ]
    for name, text in {"cluster": "c1", "source_service": "web", "source_cluster": "c1"}.items():
        parts = [more.get(name, np.full(len(ms), text, object)) for _, _, ms, _, more in rows]
        batch[name] = Strings.of(np.concatenate(parts)[order])
    return batch


def _edges(made: list, service: str, weight: float) -> dict:
    ids = np.concatenate([np.empty(0, object), *(ids for *_, ids in made)])
    return {
        "trace_id": ids,
        "span_id": np.array([f"{i:016x}" for i in range(len(ids))], object),
        "source_class": Strings.of(f"{service} {k.method} {k.template}" for k, _, i in made for _ in i),
        "class": Strings.of(callee for _, callee, i in made for _ in i),
        "adjusted_count": np.full(len(ids), weight),
    }


def memory(kinds: list[Kind], seed: int, **options: float) -> Memory:
    made = Memory(3600, Counters())
    made.turn(0)
    if kinds:
        calls, edges = batches(kinds, seed, **options)
        made.add_calls(calls)
        made.add_edges(edges)
    return made


def decide_all(memory: Memory, options: Options, times: int = 1) -> tuple:
    """Decides `times` times about all services, with a new decider.

    Returns all rules written, and the last finding of each class.
    """
    decider, written, found = Decider(options), [], {}
    for i in range(times):
        for service, kept in memory.services.items():
            history = [rule for rule in written if rule.service == service]
            fresh, findings = decider.decide(service, kept, memory.names, history, 1_000_000 + 30_000 * i)
            written += fresh
            found |= {finding.class_: finding for finding in findings}
    return written, found


def decide(memory: Memory, rules: list, options: Options, times: int = 1, now_ms: int = 1_000_000) -> tuple:
    """Decides `times` times about SERVICE, with a new decider.

    Returns all rules written, and the last finding of each class.
    """
    decider, written = Decider(options), []
    for i in range(times):
        fresh, findings = decider.decide(
            SERVICE, memory.services[SERVICE], memory.names, [*rules, *written], now_ms + 30_000 * i
        )
        written += fresh
    return written, {finding.class_: finding for finding in findings}

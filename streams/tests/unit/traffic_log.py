"""A log of batches as `exclusive` writes them, and what may happen to its readers.

It has several sources, rising sequences, and repeats.
"""

import numpy as np
from spillway_contracts import names
from spillway_streams.batches import columns
from spillway_streams.batches.columns import Columns
from spillway_streams.batches.positions import CHUNK_BITS, Batch

T0 = 1_700_000_000


def calls(random: np.random.Generator, rows: int, first: int = T0) -> Columns:
    """Calls of a few services and classes that started within four seconds.

    A few of them failed, a few are not stamped.
    """
    service = random.integers(0, 3, rows)
    values = zip(
        ((first * 1_000_000) + random.integers(0, 4_000_000, rows)).tolist(), service.tolist(),
        random.integers(0, 2, rows).tolist(), random.integers(0, 2, rows).tolist(),
        random.integers(1, 90_000, rows).tolist(), (random.random(rows) < 0.2).tolist(),
        random.integers(0, 3, rows).tolist(), random.choice([1.0, 2.5], rows).tolist(), strict=True,
    )  # fmt: skip
    return columns.from_rows(columns.CALLS, [
        (
            at, f"{i % 7:032x}", f"{i:016x}", f"c{k}", f"s{s}", f"s{s} GET /{c}", "", "" if s else "x", ms, ms // 2,
            load, float(load), 10, 20, 200, bad, weight, load, float(load > 1), 3,
        )
        for i, (at, s, c, k, ms, bad, load, weight) in enumerate(values)
    ])  # fmt: skip


def edges(random: np.random.Generator, rows: int, first: int = T0) -> Columns:
    """Calls by the same classes to one of two services; for some, the network time is unknown."""
    at = (first * 1_000_000 + random.integers(0, 4_000_000, rows)).tolist()
    source, target = random.integers(0, 3, rows).tolist(), random.integers(0, 2, rows).tolist()
    network, failed = random.integers(-1, 40_000, rows).tolist(), (random.random(rows) < 0.1).tolist()
    return columns.from_rows(columns.EDGES, [
        (
            at[i], f"{i % 5:032x}", f"{i:016x}", "c0", f"s{source[i]}", f"s{source[i]} GET /0" if i % 9 else "", "c1",
            f"t{target[i]}", f"t{target[i]} GET /", 50_000, network[i], 100 + i, 200, 200, failed[i], 2.0, 1, 3,
            i % 3,
        )
        for i in range(rows)
    ])  # fmt: skip


def log(
    random: np.random.Generator,
    make,
    topic: str = names.KAFKA_TOPIC_CALLS,
    sources: int = 3,
    batches: int = 8,
) -> list[tuple[Batch, Columns]]:
    """Messages of one topic partition in the order of its log.

    The sequences of each source rise. Sources are mixed.
    """
    waiting = [
        [(Batch(topic, 1, p, (100 + n << CHUNK_BITS) | 1), make(random, 12, T0 + n)) for n in range(batches)]
        for p in range(sources)
    ]
    found = []
    while any(waiting):
        source = random.choice([i for i, left in enumerate(waiting) if left])
        found.append(waiting[source].pop(0))
    return found


def with_repeats(random: np.random.Generator, messages: list, share: float = 0.3) -> list:
    """The log after its writers were killed.

    A source repeats its newest batches, unchanged, before it continues.
    """
    found: list = []
    for message in messages:
        found.append(message)
        if random.random() < share:
            of_source = [m for m in found if m[0].source == message[0].source]
            found += of_source[-int(random.integers(1, 4)) :]
    return found

"""Reads back from ClickHouse what a worker needs when a partition is assigned to it.

These are parts up to the stored positions. Rows exist several times on their way to memory, so
partitions are read one at a time.
"""

from collections.abc import Collection, Sequence
from importlib import resources

from spillway_streams.clients.store import Store

Stored = Sequence[tuple[str, int, int, int]]  # topic, partition, source, last sequence stored


def sql(name: str) -> str:
    """Returns the text of the query sql/`name`.sql."""
    return (resources.files("spillway_streams") / "sql" / f"{name}.sql").read_text()


async def positions(store: Store, job: str, partitions: Collection[int]) -> Stored:
    """Returns the stored positions of a job in these partitions."""
    rows = await store.select(sql("positions"), {"job": job, "partitions": tuple(partitions)})
    return list(zip(*rows, strict=True))


async def parts(
    store: Store, name: str, topic: str, stored: Stored, seconds: int, limit: int = 2**32
) -> list[tuple]:
    """Returns the columns of stored parts, summed over the batches up to the stored positions.

    `name`: load (columns load.LOAD_PARTS), edges (callgraph.EDGE_PARTS) or network
    (callgraph.NETWORK_PARTS). `stored`: positions, all of one partition. Covers the newest
    `seconds`, and of these the newest `limit` rows.
    """
    places = [row for row in stored if row[0] == topic]
    if not places:
        return []
    parameters = {
        "partition": places[0][1],
        "sources": [source for _, _, source, _ in places],
        "last": [sequence for *_, sequence in places],
        "seconds": seconds,
        "limit": limit,
    }
    return await store.select(sql(name), parameters)


async def cpu(store: Store, partition: int, count: int, seconds: int) -> list[tuple]:
    """Returns the columns cpu.CPU_1S of one partition out of `count`."""
    return await store.select(sql("cpu"), {"partition": partition, "count": count, "seconds": seconds})


async def windows(store: Store, partition: int, count: int, seconds: int) -> list[tuple]:
    """Returns service, class and input_window of the newest curves, as columns.

    They are those of one partition out of `count`.
    """
    return await store.select(sql("curves"), {"partition": partition, "count": count, "seconds": seconds})

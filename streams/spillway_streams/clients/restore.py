"""What a worker reads back from ClickHouse when a partition is assigned to it: parts up to the stored positions.

One partition at a time: what is on its way to memory exists several times.
"""

from collections.abc import Collection, Sequence
from importlib import resources

from spillway_streams.clients.store import Store

Stored = Sequence[tuple[str, int, int, int]]  # topic, partition, source, the last sequence that is stored


def sql(name: str) -> str:
    return (resources.files("spillway_streams") / "sql" / f"{name}.sql").read_text()


async def positions(store: Store, job: str, partitions: Collection[int]) -> Stored:
    rows = await store.select(sql("positions"), {"job": job, "partitions": tuple(partitions)})
    return list(zip(*rows, strict=True))


async def parts(
    store: Store, name: str, topic: str, stored: Stored, seconds: int, limit: int = 2**32
) -> list[tuple]:
    """Columns of the parts `name`: load (load.LOAD_PARTS), edges (callgraph.EDGE_PARTS) or network
    (callgraph.NETWORK_PARTS), of the newest `seconds`, summed over the batches up to these positions, all of one
    partition; the newest `limit` rows."""
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
    """Columns of cpu.CPU_1S of one partition of `count`."""
    return await store.select(sql("cpu"), {"partition": partition, "count": count, "seconds": seconds})


async def windows(store: Store, partition: int, count: int, seconds: int) -> list[tuple]:
    """Columns service, class, input_window of the newest curves of one partition of `count`."""
    return await store.select(sql("curves"), {"partition": partition, "count": count, "seconds": seconds})

"""Faust's consumer as `exclusive` needs it: it delivers every message, whatever it read before."""

import asyncio
from types import SimpleNamespace

from faust.types import TP
from spillway_streams.ingest.offsets import Offsets, Verdict
from spillway_streams.jobs import runner
from spillway_streams.process.config import ExclusiveSettings

LOG = TP("log", 0)


async def test_a_seek_in_the_middle_of_a_fetch_is_followed(tmp_path):
    """Offsets 3 and 4 are missing for ever. 5 to 9 have been fetched when 3 is sought.

    The rest of that fetch is dropped. What is read again is taken, every message once.
    """
    address = {"kafka": "h:1", "health_listen": "h:2", "clickhouse_url": "clickhouse://localhost"}
    app = runner.app("test", ExclusiveSettings(**address, state_dir=tmp_path))
    app.transport.opener = lambda tp, start: start.offset
    offsets, taken = Offsets(0), []

    async def take(message: SimpleNamespace) -> None:
        verdict = offsets.judge(message.offset)
        if verdict is Verdict.SEEK:
            consumer._read_offset[LOG] = offsets.next_offset  # as the driver's seek does
            fetches.append([*range(5, 12)])
        elif verdict is Verdict.TAKE:
            taken.append(message.offset)

    fetches = [[0, 1, 2, 5, 6, 7, 8, 9]]
    consumer = app.transport.create_consumer(take, on_partitions_revoked=None, on_partitions_assigned=None)

    async def getmany(timeout: float):
        if not fetches:
            fetcher._stopped.set()
        for offset in fetches.pop(0) if fetches else ():
            yield LOG, SimpleNamespace(offset=offset, topic=LOG.topic, key=None, value=None)

    consumer.getmany = getmany
    fetcher = SimpleNamespace(_stopped=asyncio.Event())
    await asyncio.wait_for(consumer._drain_messages(fetcher), 10)
    assert taken == [0, 1, 2, *range(5, 12)]

"""Messages that are worth sending only while they are new."""

import asyncio
from types import SimpleNamespace

from spillway_streams.clients.latest_sender import LatestSender
from spillway_streams.clients.sending import Message
from spillway_streams.process.counters import Counters


def _batch(number: int) -> list[Message]:
    return [Message("arrivals", bytes([number]), partition) for partition in (0, 1)]


async def test_a_partition_without_leader_holds_up_no_others_and_its_newest_wait():
    """The oldest waiting messages are dropped and counted. The others follow in order later."""
    sent, leader, counters = [], asyncio.Event(), Counters()

    async def once(message: Message) -> None:
        if message.partition == 0:
            await leader.wait()
        sent.append((message.partition, message.value[0]))

    sender = LatestSender(SimpleNamespace(once=once), 2, counters)
    for number in range(5):
        sender.send(_batch(number))
        await asyncio.sleep(0.01)
    assert sent == [(1, number) for number in range(5)] and counters["arrivals_dropped"] == 2
    leader.set()
    await sender.settled()
    assert sent[5:] == [(0, 0), (0, 3), (0, 4)] and counters["arrivals_dropped"] == 2


async def test_what_fails_is_counted_and_not_repeated():
    """The message beside it and the next batch are sent."""
    sent, counters = [], Counters()

    async def once(message: Message) -> None:
        sent.append(message.value[0])
        if message.value[0] == 1:
            raise ConnectionError

    sender = LatestSender(SimpleNamespace(once=once), 2, counters)
    sender.send([Message("arrivals", bytes([number]), 0) for number in (1, 2)])
    sender.send([Message("arrivals", bytes([3]), 0)])
    await sender.settled()
    assert sent == [1, 2, 3] and counters["arrivals_dropped"] == 1

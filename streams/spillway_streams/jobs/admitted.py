"""Finds out what a topic of all clusters already contains.

It reads the topic from where a commit has noted that its log was.
"""

import re
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP
from spillway_runtime import retry

from spillway_streams.ingest import admission
from spillway_streams.jobs import runner
from spillway_streams.process import health
from spillway_streams.process.config import JobSettings

_TIMEOUT_MS, _READ_MS = 5000, 1000


def note(mark: int) -> str:
    """Returns the note of a commit.

    Everything that is admitted after the commit is at offset `mark` of the log of all clusters, or
    later.
    """
    return f"mark={mark}"


def marked(text: str) -> int | None:
    """Returns the mark in a note; None for a text that is not such a note."""
    found = re.fullmatch(r"mark=(\d{1,19})", text, re.ASCII)
    return int(found[1]) if found else None


async def find(
    context: runner.Context[JobSettings], merged: TP, notes: Iterable[str]
) -> tuple[int, dict[str, int]]:
    """Returns the end of a partition of a topic of all clusters, and what has been admitted to it.

    The second value is, by cluster, the newest offset of the cluster's own topic that is found
    there. The search starts at the smallest mark of these notes. A note without a mark belongs to a
    partition of which nothing has been admitted.
    """
    marks = [mark for text in notes if (mark := marked(text)) is not None]
    first = min(marks, default=None)
    return await retry.until_done(
        lambda: _find(context.settings, TopicPartition(*merged), first), health.KAFKA, context.status
    )


async def _find(settings: JobSettings, tp: TopicPartition, first: int | None) -> tuple[int, dict[str, int]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.brokers,
        enable_auto_commit=False,
        request_timeout_ms=_TIMEOUT_MS,
        **settings.kafka_client(),
    )
    await consumer.start()
    try:
        consumer.assign([tp])
        begin, end = (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
        consumer.seek(tp, end if first is None else min(max(first, begin), end))
        return end, await _newest(consumer, tp, end)
    finally:
        await consumer.stop()


async def _newest(consumer: AIOKafkaConsumer, tp: TopicPartition, end: int) -> dict[str, int]:
    newest: dict[str, int] = {}
    while await consumer.position(tp) < end:
        for record in (await consumer.getmany(tp, timeout_ms=_READ_MS)).get(tp, []):
            if origin := admission.origin(record.headers):
                cluster, offset = origin
                newest[cluster] = max(newest.get(cluster, -1), offset)
    return newest

"""What is in a topic of all clusters already: read back from where a commit has noted that its log was."""

import re
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, TopicPartition
from faust.types import TP

from spillway_streams.ingest import admission
from spillway_streams.jobs import runner
from spillway_streams.process import backoff, health
from spillway_streams.process.config import JobSettings

_TIMEOUT_MS, _READ_MS = 5000, 1000


def note(mark: int) -> str:
    """Goes with a commit: whatever is admitted after it is at this offset of the log of all clusters, or later."""
    return f"mark={mark}"


def marked(text: str) -> int | None:
    """The inverse; None for another's note."""
    found = re.fullmatch(r"mark=(\d{1,19})", text, re.ASCII)
    return int(found[1]) if found else None


async def find(context: runner.Context, merged: TP, notes: Iterable[str]) -> tuple[int, dict[str, int]]:
    """The end of a partition of a topic of all clusters; and by cluster the newest offset of its own topic that is in
    there, from the smallest mark of these notes on. A note without a mark is of a partition that nobody has admitted
    anything of."""
    marks = [mark for text in notes if (mark := marked(text)) is not None]
    first = min(marks, default=None)
    return await backoff.until_done(
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

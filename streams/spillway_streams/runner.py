"""The life of one job: dependencies, the Faust app, signals, health.

Faust's own topics are kept away: no tables, no leader election, no replies, no web server.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import faust
from faust.types import TP
from spillway_contracts import names

from spillway_streams import backoff, health, topics
from spillway_streams.config import Settings
from spillway_streams.counters import Counters
from spillway_streams.health import Status
from spillway_streams.store import Store

log = logging.getLogger("spillway.runner")
KAFKA = "kafka"
_STOP_S = 4.0
_RESTART_PAUSE_S = 2.0


@dataclass(frozen=True)
class Context:
    """What a job is given."""

    settings: Settings
    status: Status
    counters: Counters
    store: Store


def app(name: str, settings: Settings) -> faust.App:
    return faust.App(
        f"spillway-{name}",
        broker=[f"kafka://{broker}" for broker in settings.brokers],
        store="memory://",
        datadir=str(settings.state_dir),
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        autodiscover=False,
        key_serializer="raw",
        value_serializer="raw",
        stream_buffer_maxsize=32,  # messages of up to 4 MB wait decoded from Kafka: 128 MB at most
        stream_wait_empty=False,
        broker_commit_interval=1.0,
        broker_session_timeout=10.0,
        broker_heartbeat_interval=3.0,
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_max_request_size=4_000_000,
        producer_compression_type="lz4",
        worker_redirect_stdouts=False,
    )


def topic(app: faust.App, name: str) -> faust.TopicT:
    """A topic whose keys and values are bytes."""
    return app.topic(name, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")


async def deliver(
    topic: faust.TopicT, value: bytes, key: bytes, status: Status, headers: dict | None = None
) -> None:
    """Sends one message; returns once the brokers have it, however long that takes."""

    async def once() -> None:
        await (await topic.send(key=key, value=value, headers=headers))

    await backoff.until_done(once, KAFKA, status)


def every(app: faust.App, seconds: float, action: Callable[[], Awaitable[None]]) -> None:
    """Runs an action again and again, this long after it last ended, while the app runs."""

    async def loop() -> None:
        while not app.should_stop:
            await asyncio.sleep(seconds)
            await action()

    app.task(loop)


def caught_up(app: faust.App, tp: TP, offset: int) -> bool:
    """Whether `offset` was the partition's last message when the broker last told."""
    end = app.consumer.highwater(tp)
    return end is None or offset + 1 >= end


async def run(context: Context, build: Callable[[Context], faust.App]) -> None:
    """Runs a job until SIGTERM or SIGINT. When Faust gives up, the process starts itself afresh."""
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sign, stop.set)
    endpoint = await health.serve(context.settings.health_address, context.status, context.counters)
    work = asyncio.create_task(_work(context, build))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.is_set():
        error = work.exception()
        log.error("the stream processor gave up, starting afresh: %s", error)
        await asyncio.sleep(_RESTART_PAUSE_S)
        await endpoint.cleanup()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    work.cancel()
    await asyncio.wait({work}, timeout=_STOP_S)
    await endpoint.cleanup()


async def _work(context: Context, build: Callable[[Context], faust.App]) -> None:
    settings = context.settings
    declared = dict.fromkeys(topics.KNOWN, settings.topic_partitions)
    declared[names.KAFKA_TOPIC_DEAD_LETTERS] = 1
    await backoff.until_done(
        lambda: topics.create(settings.brokers, declared, settings.topic_replicas), KAFKA, context.status
    )
    await context.store.reach()
    app = build(context)
    try:
        await app.start()
        while not app.should_stop:
            await asyncio.sleep(0.2)
        raise RuntimeError(f"Faust stopped: {app.crash_reason!r}")
    finally:
        await asyncio.wait_for(app.stop(), _STOP_S - 0.5)

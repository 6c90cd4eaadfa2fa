"""The life of a process with one job or several: dependencies, Faust apps, signals, health.

Faust's own topics are not used: no tables, no leader election, no replies, no web server.
"""

import asyncio
import inspect
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NoReturn, TypeVar

import faust
from aiohttp import web
from faust.types import TP
from spillway_contracts import names
from spillway_runtime import retry
from spillway_runtime.status import Status

from spillway_streams.clients import transport
from spillway_streams.clients.dead_letters import DeadLetters
from spillway_streams.clients.sending import Sender
from spillway_streams.clients.store import Store
from spillway_streams.process import health, metrics
from spillway_streams.process.config import JobSettings, StoringSettings
from spillway_streams.process.counters import Counters
from spillway_streams.process.lag import Lag
from spillway_streams.topics import declared, topics

log = logging.getLogger("spillway.runner")
_REACH_PERIOD_S, _REACH_S = 1.0, 5.0
_SOONEST_S = 0.02  # between two runs of an action
_STOP_S = 4.0
_RESTART_PAUSE_S = 2.0
_THREADS = 6  # per job
# aiokafka measures a message before compression, the broker afterwards. Only the broker's answer
# counts.
_NO_LIMIT = 1 << 30
_DEAD_LETTER_BYTES = 1_000_000  # Kafka's own default
S = TypeVar("S", bound=JobSettings)
S_co = TypeVar("S_co", bound=JobSettings, covariant=True)


@dataclass(frozen=True)
class Context(Generic[S_co]):
    """Everything that a job is given."""

    settings: S_co
    status: Status
    counters: Counters
    store: Store | None  # None for jobs without a setting for ClickHouse
    layout: topics.Layout = topics.Layout(1, {})  # known once the topics are prepared
    lag: Lag = field(default_factory=Lag)

    @property
    def clickhouse(self: "Context[StoringSettings]") -> Store:
        """The store of a job that stores rows."""
        assert self.store is not None  # such a job has a setting for ClickHouse
        return self.store


def dead_letters(app: faust.App, context: Context[JobSettings]) -> DeadLetters:
    """Returns the dead letters of a job, with the size limit of their topic."""
    limit = context.layout.max_bytes.get(names.KAFKA_TOPIC_DEAD_LETTERS, _DEAD_LETTER_BYTES)
    return DeadLetters(Sender(app, context.status), context.counters, limit)


def app(name: str, settings: JobSettings, **options: Any) -> faust.App:
    """Creates a Faust app. `options`: options of Faust, beside those of all jobs."""
    made = faust.App(
        f"spillway-{name}",
        broker=[f"kafka://{broker}" for broker in settings.brokers],
        broker_credentials=transport.credentials(settings.kafka_client()),
        store="memory://",
        datadir=str(settings.state_dir),
        web_enabled=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        autodiscover=False,
        key_serializer="raw",
        value_serializer="raw",
        # Number of messages, each up to 4 MB, compressed. Beside them, what the client has fetched
        # waits unpacked: 1 MiB of each partition at a time.
        stream_buffer_maxsize=32,
        stream_wait_empty=False,
        broker_commit_interval=1.0,
        broker_session_timeout=10.0,
        broker_heartbeat_interval=3.0,
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_max_request_size=_NO_LIMIT,
        worker_redirect_stdouts=False,
        # Most jobs send batches that are already compressed, in a third of the time.
        **{"producer_compression_type": None} | options,
    )
    made.transport = transport.Transport(made.conf.broker_consumer, made)
    return made


def topic(app: faust.App, *topics: str, acks: bool = True) -> faust.TopicT:
    """Returns several topics as one, with keys and values of bytes.

    Without `acks`, Faust commits no offsets of them.
    """
    types = {"key_type": bytes, "value_type": bytes, "key_serializer": "raw", "value_serializer": "raw"}
    return app.topic(*topics, acks=acks, **types)


def every(
    app: faust.App,
    seconds: float,
    action: Callable[[], Awaitable[None]],
    soon: asyncio.Event | None = None,
) -> None:
    """Runs an action repeatedly while the app runs, each time `seconds` after it last ended.

    `soon`: ends the wait when it is set, though not before _SOONEST_S have passed.
    """

    async def wait() -> None:
        if soon is None:
            return await asyncio.sleep(seconds)
        await asyncio.sleep(min(_SOONEST_S, seconds))
        with suppress(TimeoutError):
            await asyncio.wait_for(soon.wait(), max(seconds - _SOONEST_S, 0.0))
        soon.clear()

    async def loop() -> None:
        while not app.should_stop:
            await wait()
            await action()

    app.task(loop)


async def _watch(app: faust.App, status: Status, lag: Lag) -> None:
    """Keeps the status of CONSUMER and the lag up to date by asking the brokers.

    A reader cannot tell "nothing new" from "nobody there", and a paused reader does not even ask.
    This is not a task of the app, because tasks of the app begin only when partitions are assigned.
    """
    while True:
        await asyncio.sleep(_REACH_PERIOD_S)
        try:
            lag.ends(await app.consumer.reach(_REACH_S), time.time())
        except Exception as error:
            status.failed(health.CONSUMER, f"{type(error).__name__}: {error}")
        else:
            status.ok(health.CONSUMER)


def caught_up(app: faust.App, tp: TP, offset: int) -> bool:
    """Whether `offset` was the partition's last message when the broker last reported its end.

    Also true when no end is known.
    """
    end = app.consumer.highwater(tp)
    return end is None or offset + 1 >= end


Build = Callable[[Context[S]], faust.App | Awaitable[faust.App]]


@dataclass(frozen=True)
class Job(Generic[S]):
    """A job of this process: its name, what it is given, and what creates its app."""

    name: str
    context: Context[S]
    build: Build[S]


async def run(jobs: Sequence[Job], health_listen: str | None = None) -> NoReturn:
    """Runs jobs until SIGTERM or SIGINT, which end the process.

    Each job has its own endpoint for health and metrics. `health_listen`: host:port of a further
    one, which is ready when all jobs are. When Faust gives up in any job, the process restarts
    itself.
    """
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    if len(jobs) > 1:  # a job whose threads wait for ClickHouse must not take those of the others
        loop.set_default_executor(ThreadPoolExecutor(_THREADS * len(jobs)))
    endpoints = [await _serve(job.context) for job in jobs]
    if health_listen:
        status = {job.name: job.context.status for job in jobs}
        endpoints.append(await health.serve_all(health_listen, status))
    work = {asyncio.create_task(_work(job.context, job.build), name=job.name) for job in jobs}
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({*work, stopped}, return_when=asyncio.FIRST_COMPLETED)
    failed = {task for task in work if task.done()}
    for task in failed:
        log.error("%s: the stream processor failed, starting afresh: %s", task.get_name(), task.exception())
    for task in work - failed:
        task.cancel()
    if work - failed:
        await asyncio.wait(work - failed, timeout=_STOP_S)
    if failed:
        await asyncio.wait({stopped}, timeout=_RESTART_PAUSE_S)
    for endpoint in endpoints:
        await endpoint.cleanup()
    sys.stderr.flush()
    if not stop.is_set():
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    os._exit(0)  # asyncio.run would wait for the consumer's thread, which may never end while Kafka is away


async def _serve(context: Context[JobSettings]) -> web.AppRunner:
    status, counters = context.status, context.counters
    exposition = metrics.exposition(status, counters, context.lag)
    return await health.serve(context.settings.health_listen, status, counters, exposition)


async def _work(context: Context[S], build: Build[S]) -> None:
    settings = context.settings
    wanted = dict.fromkeys(declared.KNOWN, declared.Topic(settings.topic_partitions, settings.topic_replicas))
    wanted[names.KAFKA_TOPIC_DEAD_LETTERS] = declared.Topic(1, settings.topic_replicas)
    layout = await retry.until_done(lambda: topics.prepare(settings, wanted), health.KAFKA, context.status)
    if context.store:
        await context.store.reach()
    app = build(replace(context, layout=layout))
    if inspect.isawaitable(app):
        app = await app
    app.transport.lag = context.lag
    watching = asyncio.create_task(_watch(app, context.status, context.lag))
    try:
        await app.start()
        while not app.should_stop:
            await asyncio.sleep(0.2)
        raise RuntimeError(f"Faust stopped: {app.crash_reason!r}")
    finally:
        watching.cancel()
        await asyncio.wait_for(app.stop(), _STOP_S - 0.5)

"""NATS: the connection, the publisher's streams and bucket, and its consumers."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import BadRequestError
from spillway_contracts import names, nats_client
from spillway_contracts.wires import NatsWire
from spillway_runtime.status import describe

from spillway_publisher.bucket.bucket import HISTORY
from spillway_publisher.process.telemetry import NATS, Telemetry, log
from spillway_publisher.rules.presence import HANDOVER_S

# Exceptions that nats-py raises while NATS is away, is restarting or refuses a request.
TROUBLE = (nats.errors.Error, TimeoutError, OSError)

CONNECT_S = 3.0
HOUR = 3600.0
ACTS_BYTES = 16 * 1024 * 1024
KEPT_ACTS_S = 48 * HOUR  # from an act's last write on; longer than any act is in force
REPLAYED_S = HANDOVER_S + 15.0  # age of the oldest heartbeats that a starting publisher reads
_WRONG_CONFIG = 10058  # JSStreamNameExistErr: same name, other configuration


def stream_configs(reports_bytes: int, replicas: int) -> list[api.StreamConfig]:
    """Returns the configurations of the streams: proposals, acts, and reports of the relays.

    When the streams of acts or reports are full, their oldest messages are dropped.
    """
    return [
        api.StreamConfig(
            name=names.NATS_STREAM_PROPOSALS,
            subjects=[names.NATS_SUBJECT_PROPOSALS_ALL],
            storage=api.StorageType.FILE,
            max_age=HOUR,
            duplicate_window=120.0,
            num_replicas=replicas,
        ),
        api.StreamConfig(
            name=names.NATS_STREAM_ACTS,
            subjects=[names.NATS_SUBJECT_ACTS_ALL],
            storage=api.StorageType.FILE,
            max_age=HOUR,
            max_bytes=ACTS_BYTES,
            discard=api.DiscardPolicy.OLD,
            duplicate_window=120.0,
            num_replicas=replicas,
        ),
        api.StreamConfig(
            name=names.NATS_STREAM_REPORTS,
            subjects=[names.NATS_SUBJECT_ACKS_ALL, names.NATS_SUBJECT_HEARTBEATS_ALL],
            storage=api.StorageType.FILE,
            max_age=HOUR,
            max_bytes=reports_bytes,
            discard=api.DiscardPolicy.OLD,
            num_replicas=replicas,
        ),
    ]


async def connect(settings: NatsWire, inbox: str, telemetry: Telemetry) -> Client:
    """Connects once, as the user to whom the inbox prefix belongs. Raises one of TROUBLE.

    Once connected, the client reconnects by itself for ever.
    """

    async def disconnected() -> None:
        telemetry.servers.failed(NATS, "disconnected")

    async def reconnected() -> None:
        telemetry.servers.ok(NATS)

    latest = "no answer"

    async def noted(error: Exception) -> None:
        nonlocal latest
        latest = describe(error)
        telemetry.counters["nats.errors"] += 1

    tls = settings.nats_tls()
    attempt = nats_client.connect(
        settings.nats_url.get_secret_value(),
        **({"tls": tls} if tls else {}),
        name="spillway-publisher",
        inbox_prefix=inbox,
        connect_timeout=2,
        reconnect_time_wait=0.25,
        max_reconnect_attempts=-1,
        ping_interval=10,
        allow_reconnect=True,
        disconnected_cb=disconnected,
        reconnected_cb=reconnected,
        error_cb=noted,
        # While disconnected, a write must fail at once instead of being sent some time later.
        pending_size=0,
    )
    try:
        # Without this bound the client would retry for ever without reporting anything.
        return await asyncio.wait_for(attempt, CONNECT_S)
    except TimeoutError:
        raise TimeoutError(f"no connection within {CONNECT_S:g} s: {latest}") from None


async def ensure(js: JetStreamContext, reports_bytes: int, replicas: int = 1) -> None:
    """Creates the streams and the buckets of rulesets and acts where they are missing.

    Existing streams are updated to our configuration. Of an existing bucket of rulesets, only
    direct reads and the number of replicas are updated; other differences are logged and left.
    `replicas`: how many servers of a NATS cluster hold each stream and bucket. Raises one of
    TROUBLE.
    """
    for config in stream_configs(reports_bytes, replicas):
        try:
            await js.add_stream(config)
        except BadRequestError as error:
            if error.err_code != _WRONG_CONFIG:
                raise
            await js.update_stream(config)
            log.info("stream %s had another configuration; updated", config.name)
    await _ensure_acts(js, replicas)
    try:
        await js.create_key_value(
            api.KeyValueConfig(
                bucket=names.NATS_BUCKET_RULESETS,
                history=HISTORY,
                storage=api.StorageType.FILE,
                # A relay may read only its own key, and only a direct read names the key in its
                # subject
                direct=True,
                replicas=replicas,
            )
        )
        return
    except BadRequestError as error:
        if error.err_code != _WRONG_CONFIG:
            raise
        log.warning("bucket %s has another configuration; used as it is", names.NATS_BUCKET_RULESETS)
    bucket = await js.key_value(names.NATS_BUCKET_RULESETS)
    config = (await bucket.status()).stream_info.config
    if not config.allow_direct or config.num_replicas != replicas:
        await js.update_stream(replace(config, allow_direct=True, num_replicas=replicas))
        log.info("bucket %s: direct reads are on, held by %d servers", names.NATS_BUCKET_RULESETS, replicas)


async def _ensure_acts(js: JetStreamContext, replicas: int) -> None:
    wanted = api.KeyValueConfig(
        bucket=names.NATS_BUCKET_ACTS,
        history=1,
        ttl=KEPT_ACTS_S,
        storage=api.StorageType.FILE,
        replicas=replicas,
    )
    try:
        await js.create_key_value(wanted)
        return
    except BadRequestError as error:
        if error.err_code != _WRONG_CONFIG:
            raise
    bucket = await js.key_value(names.NATS_BUCKET_ACTS)
    config = (await bucket.status()).stream_info.config
    if config.num_replicas != replicas or config.max_age != KEPT_ACTS_S:
        await js.update_stream(replace(config, num_replicas=replicas, max_age=KEPT_ACTS_S))


async def acts_consumer(js: JetStreamContext, ack_wait_s: float) -> JetStreamContext.PullSubscription:
    """Creates the durable consumer of acts that all publishers share, one act at a time."""
    return await js.pull_subscribe(
        names.NATS_SUBJECT_ACTS_ALL,
        durable="publisher-acts",
        stream=names.NATS_STREAM_ACTS,
        config=api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ack_wait_s, max_ack_pending=1),
    )


async def proposals_consumer(js: JetStreamContext, ack_wait_s: float) -> JetStreamContext.PullSubscription:
    """Creates the durable consumer of proposals that all publishers share.

    At most one proposal is in flight at a time, which keeps proposals in order.
    """
    return await js.pull_subscribe(
        names.NATS_SUBJECT_PROPOSALS_ALL,
        durable="publisher-proposals",
        stream=names.NATS_STREAM_PROPOSALS,
        config=api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ack_wait_s, max_ack_pending=1),
    )


async def acks_consumer(js: JetStreamContext) -> JetStreamContext.PullSubscription:
    """Creates the durable consumer of acknowledgements that all publishers share.

    Each acknowledgement is stored by one of them.
    """
    return await js.pull_subscribe(
        names.NATS_SUBJECT_ACKS_ALL,
        durable="publisher-acks",
        stream=names.NATS_STREAM_REPORTS,
        config=api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, ack_wait=30.0, max_ack_pending=10_000),
    )


async def answers_consumer(js: JetStreamContext, since: datetime) -> JetStreamContext.PullSubscription:
    """Creates this process's own consumer of acknowledgements, from this time on.

    It reads what another publisher stores, and settles nothing.
    """
    return await js.pull_subscribe(
        names.NATS_SUBJECT_ACKS_ALL,
        stream=names.NATS_STREAM_REPORTS,
        config=api.ConsumerConfig(
            ack_policy=api.AckPolicy.NONE,
            deliver_policy=api.DeliverPolicy.BY_START_TIME,
            opt_start_time=since,
            inactive_threshold=60.0,
        ),
    )


async def heartbeats_consumer(js: JetStreamContext) -> JetStreamContext.PullSubscription:
    """Creates this process's own consumer of heartbeats, so every publisher knows every placement.

    It starts with the heartbeats of the last REPLAYED_S seconds, not with the last one per subject,
    because all relays of a cluster share one subject.
    """
    return await js.pull_subscribe(
        names.NATS_SUBJECT_HEARTBEATS_ALL,
        stream=names.NATS_STREAM_REPORTS,
        config=api.ConsumerConfig(
            ack_policy=api.AckPolicy.EXPLICIT,
            deliver_policy=api.DeliverPolicy.BY_START_TIME,
            opt_start_time=datetime.now(UTC) - timedelta(seconds=REPLAYED_S),
            inactive_threshold=60.0,
        ),
    )

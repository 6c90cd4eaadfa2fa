"""The rendered NATS configuration in a real server: the rights of each user."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import nats.errors
import permitted_nats
import pytest
import yaml
from nats.js.api import KeyValueConfig, StreamConfig
from nats.js.errors import Error as JetStreamError
from permitted_nats import INBOXES, Bus
from spillway_contracts import names
from spillway_lab.render import bus, files, templates
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import eventually_async

pytestmark = pytest.mark.component
CLUSTER, OTHER = "one", "two-b"
BUCKET = names.NATS_BUCKET_RULESETS
STREAM = f"KV_{BUCKET}"
_WAIT_S = 30.0


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Bus]:
    with permitted_nats.running(tmp_path_factory.mktemp("nats"), [CLUSTER, OTHER]) as at:
        asyncio.run(_prepared(at))
        yield at


async def _prepared(at: Bus) -> None:
    """Creates what the publisher creates: the bucket with a key per cluster, and streams.

    The streams hold reports, proposals and acts. A second bucket holds an accepted act.
    """
    async with at.user("publisher") as (client, _):
        js = client.jetstream()
        bucket = await js.create_key_value(KeyValueConfig(bucket=BUCKET, history=8, direct=True))
        for cluster in (CLUSTER, OTHER):
            await bucket.put(cluster, f"rules of {cluster}".encode())
        subjects = [names.NATS_SUBJECT_ACKS_ALL, names.NATS_SUBJECT_HEARTBEATS_ALL]
        await js.add_stream(StreamConfig(name=names.NATS_STREAM_REPORTS, subjects=subjects))
        proposed = [names.NATS_SUBJECT_PROPOSALS_ALL]
        await js.add_stream(StreamConfig(name=names.NATS_STREAM_PROPOSALS, subjects=proposed))
        acts = await js.create_key_value(KeyValueConfig(bucket=names.NATS_BUCKET_ACTS))
        await acts.put("freeze-1", b"an act")
        asked = [names.NATS_SUBJECT_ACTS_ALL]
        await js.add_stream(StreamConfig(name=names.NATS_STREAM_ACTS, subjects=asked))


def key(cluster: str) -> str:
    return f"$KV.{BUCKET}.{cluster}"


def direct_get(cluster: str) -> str:
    return f"$JS.API.DIRECT.GET.{STREAM}.{key(cluster)}"


def report(kind: str, cluster: str) -> str:
    return kind.format(cluster=cluster)


async def test_a_relay_reads_its_own_key(server: Bus):
    """The relay uses a direct get, and the reply comes to its own inbox."""
    async with server.user(f"relay-{CLUSTER}") as (relay, errors), server.user("publisher") as (publisher, _):
        await (await publisher.jetstream().key_value(BUCKET)).put(CLUSTER, b"rules to read")
        found = await relay.request(direct_get(CLUSTER), timeout=_WAIT_S)
        assert found.data == b"rules to read"
        assert errors == []


async def test_a_relay_hears_when_its_own_key_is_written(server: Bus):
    """A relay does not hear of writes to another cluster's key."""
    async with server.user(f"relay-{CLUSTER}") as (relay, errors), server.user("publisher") as (publisher, _):
        subscription = await relay.subscribe(key(CLUSTER))
        await relay.flush()
        bucket = await publisher.jetstream().key_value(BUCKET)
        await bucket.put(OTHER, b"not for you")
        await bucket.put(CLUSTER, b"newer")
        assert (await subscription.next_msg(timeout=_WAIT_S)).data == b"newer"
        assert errors == []


@pytest.mark.parametrize("kind", [names.NATS_SUBJECT_ACKS, names.NATS_SUBJECT_HEARTBEATS])
async def test_a_relay_reports_for_its_cluster(server: Bus, kind: str):
    """JetStream confirms that the report is stored."""
    async with server.user(f"relay-{CLUSTER}") as (client, errors):
        stored = await client.jetstream().publish(report(kind, CLUSTER), b"report", timeout=_WAIT_S)
        assert stored.stream == names.NATS_STREAM_REPORTS
        assert errors == []


async def refused(errors: list[str], how: str) -> None:
    """Waits for the server's answer, whose order relative to other messages is not fixed."""
    await eventually_async(lambda: any(how in error for error in errors), how, seen=lambda: errors)


FORBIDDEN = {
    "another cluster's key": direct_get(OTHER),
    "any key of the bucket": f"$JS.API.DIRECT.GET.{STREAM}",
    "messages by number": f"$JS.API.STREAM.MSG.GET.{STREAM}",
    "a consumer that delivers elsewhere": f"$JS.API.CONSUMER.CREATE.{STREAM}.c.{key(CLUSTER)}",
    "a write of its own key": key(CLUSTER),
    "a write of another's key": key(OTHER),
    "another cluster's acks": report(names.NATS_SUBJECT_ACKS, OTHER),
    "another cluster's heartbeats": report(names.NATS_SUBJECT_HEARTBEATS, OTHER),
    "a proposal": names.NATS_SUBJECT_PROPOSALS.format(origin="operator"),
    "an act": names.NATS_SUBJECT_ACTS.format(via="operator"),
    "purging the bucket": f"$JS.API.STREAM.PURGE.{STREAM}",
    "deleting the bucket": f"$JS.API.STREAM.DELETE.{STREAM}",
    "deleting a message": f"$JS.API.STREAM.MSG.DELETE.{STREAM}",
    "changing the bucket": f"$JS.API.STREAM.UPDATE.{STREAM}",
    "answering another relay": f"{names.NATS_INBOX_RELAY.format(cluster=OTHER)}.x",
}


@pytest.mark.parametrize("subject", FORBIDDEN.values(), ids=FORBIDDEN.keys())
async def test_a_relay_may_publish_nothing_else(server: Bus, subject: str):
    """The server reports the violation, and nothing reaches possible subscribers."""
    async with server.user(f"relay-{CLUSTER}") as (relay, errors):
        await relay.publish(subject, b"x")
        await refused(errors, "permissions violation for publish")
    async with server.user("publisher") as (publisher, _):
        found = await (await publisher.jetstream().key_value(BUCKET)).get(OTHER)
        assert found.value != b"x"


@pytest.mark.parametrize(
    "subject",
    [
        key(OTHER),
        f"$KV.{BUCKET}.>",
        ">",
        "_INBOX.>",
        f"{names.NATS_INBOX_OPTIMIZER}.>",
        f"{names.NATS_INBOX_PUBLISHER}.>",
        f"{names.NATS_INBOX_RELAY.format(cluster=OTHER)}.>",
        names.NATS_SUBJECT_PROPOSALS_ALL,
        report(names.NATS_SUBJECT_ACKS, CLUSTER),
    ],
)
async def test_a_relay_may_hear_nothing_else(server: Bus, subject: str):
    """A relay may not hear another's key, anyone's replies, or what it writes itself."""
    async with server.user(f"relay-{CLUSTER}") as (relay, errors):
        await relay.subscribe(subject)
        await refused(errors, "permissions violation for subscription")


async def test_the_usual_way_to_watch_a_bucket_is_refused(server: Bus):
    """The client library's watch creates a consumer, which would bypass the permissions."""
    async with server.user(f"relay-{CLUSTER}") as (relay, _):
        with pytest.raises((JetStreamError, nats.errors.Error, TimeoutError)):
            await (await relay.jetstream(timeout=1).key_value(BUCKET)).watch(CLUSTER)


async def test_the_publisher_watches_every_key(server: Bus):
    """The owner of the bucket may do what a relay may not."""
    async with server.user("publisher") as (publisher, _):
        watcher = await (await publisher.jetstream().key_value(BUCKET)).watchall()
        seen = set()
        while (entry := await watcher.updates(timeout=_WAIT_S)) is not None:
            seen.add(entry.key)
        assert seen == {CLUSTER, OTHER}


def proposal(origin: str) -> str:
    return names.NATS_SUBJECT_PROPOSALS.format(origin=origin)


async def test_the_operator_reads_what_is_in_force_and_proposes(server: Bus):
    """The operator does what `status` and `rollback` do.

    It reads every key with its value and history, and proposes in the operator's name.
    """
    async with server.user("publisher") as (publisher, _):
        await (await publisher.jetstream().key_value(BUCKET)).put(CLUSTER, b"newest")
    async with server.user("operator") as (operator, errors):
        js = operator.jetstream(timeout=_WAIT_S)
        info = await js.stream_info(STREAM, subjects_filter=">")
        assert set(info.state.subjects) == {key(CLUSTER), key(OTHER)}
        assert (await js.get_msg(STREAM, subject=key(CLUSTER))).data == b"newest"
        assert (
            await js.get_msg(STREAM, seq=1, subject=key(OTHER), next=True)
        ).data == f"rules of {OTHER}".encode()
        assert (await js.publish(proposal("operator"), b"x")).stream == names.NATS_STREAM_PROPOSALS
        assert errors == []


async def test_the_operator_sends_acts_and_reads_those_accepted(server: Bus):
    """It does what `act` and `acts` do."""
    async with server.user("operator") as (operator, errors):
        js = operator.jetstream(timeout=_WAIT_S)
        sent = await js.publish(names.NATS_SUBJECT_ACTS.format(via="operator"), b"{}")
        assert sent.stream == names.NATS_STREAM_ACTS
        every = f"$KV.{names.NATS_BUCKET_ACTS}.>"
        found = await js.get_msg(f"KV_{names.NATS_BUCKET_ACTS}", seq=1, subject=every, next=True)
        assert found.data == b"an act"
        assert errors == []


@pytest.mark.parametrize("origin", ["optimizer", "papa"])
async def test_an_origin_proposes(server: Bus, origin: str):
    """JetStream confirms that the proposal is stored."""
    async with server.user(origin) as (client, errors):
        stored = await client.jetstream().publish(proposal(origin), b"x", timeout=_WAIT_S)
        assert stored.stream == names.NATS_STREAM_PROPOSALS
        assert errors == []


@pytest.mark.parametrize("origin", ["optimizer", "papa"])
async def test_an_origin_of_the_previous_version_proposes(server: Bus, origin: str):
    """Optimizer and PAPA of 0.1.0 share one inbox.

    They receive their answers there until they are upgraded.
    """
    previous = yaml.safe_load((servers.ROOT / "contracts/golden/previous/0.1.0/names.yaml").read_text())
    async with server.user(origin, inbox=previous["nats_inbox"]["proposer"]) as (client, errors):
        stored = await client.jetstream().publish(proposal(origin), b"x", timeout=_WAIT_S)
        assert stored.stream == names.NATS_STREAM_PROPOSALS
        assert errors == []


NOBODYS = {  # only relays may do these
    "acks": report(names.NATS_SUBJECT_ACKS, CLUSTER),
    "heartbeats": report(names.NATS_SUBJECT_HEARTBEATS, CLUSTER),
    "answering a relay": f"{names.NATS_INBOX_RELAY.format(cluster=CLUSTER)}.x",
}
READS_ONLY = {  # only the publisher may do these
    "a write of a key": key(CLUSTER),
    "a write of an act": f"$KV.{names.NATS_BUCKET_ACTS}.freeze-1",
    "an act by the console": names.NATS_SUBJECT_ACTS.format(via="console"),
    "purging the bucket": f"$JS.API.STREAM.PURGE.{STREAM}",
    "deleting the bucket": f"$JS.API.STREAM.DELETE.{STREAM}",
    "deleting a message": f"$JS.API.STREAM.MSG.DELETE.{STREAM}",
    "changing the bucket": f"$JS.API.STREAM.UPDATE.{STREAM}",
    "making a bucket": "$JS.API.STREAM.CREATE.KV_mine",
    "a consumer of the bucket": f"$JS.API.CONSUMER.CREATE.{STREAM}.c.{key(CLUSTER)}",
    "a consumer of proposals": f"$JS.API.CONSUMER.CREATE.{names.NATS_STREAM_PROPOSALS}.c",
    "reading proposals": f"$JS.API.STREAM.MSG.GET.{names.NATS_STREAM_PROPOSALS}",
    "reading reports": f"$JS.API.STREAM.MSG.GET.{names.NATS_STREAM_REPORTS}",
    "taking the publisher's proposals": f"$JS.API.CONSUMER.MSG.NEXT.{names.NATS_STREAM_PROPOSALS}.publisher-proposals",
    "purging proposals": f"$JS.API.STREAM.PURGE.{names.NATS_STREAM_PROPOSALS}",
    "answering the publisher": f"{names.NATS_INBOX_PUBLISHER}.x",
}
READS_NOTHING = {  # for users that only propose
    **READS_ONLY,
    "a proposal of the operator": proposal("operator"),
    "an act": names.NATS_SUBJECT_ACTS.format(via="operator"),
    "reading an act": f"$JS.API.STREAM.MSG.GET.KV_{names.NATS_BUCKET_ACTS}",
    "reading a key": f"$JS.API.STREAM.MSG.GET.{STREAM}",
    "reading a key directly": direct_get(CLUSTER),
    "the bucket's keys": f"$JS.API.STREAM.INFO.{STREAM}",
}
MAY_NOT_PUBLISH = {
    "operator": {
        **NOBODYS,
        **READS_ONLY,
        "a proposal of the optimizer": proposal("optimizer"),
        "a proposal of PAPA": proposal("papa"),
    },
    "optimizer": {
        **NOBODYS,
        **READS_NOTHING,
        "a proposal of PAPA": proposal("papa"),
        "answering PAPA": f"{names.NATS_INBOX_PAPA}.x",
    },
    "papa": {
        **NOBODYS,
        **READS_NOTHING,
        "a proposal of the optimizer": proposal("optimizer"),
        "answering the optimizer": f"{names.NATS_INBOX_OPTIMIZER}.x",
    },
    "publisher": {
        **NOBODYS,
        "an act by the console": names.NATS_SUBJECT_ACTS.format(via="console"),
        "a proposal of the optimizer": proposal("optimizer"),
        "a proposal of PAPA": proposal("papa"),
        "answering the operator": f"{names.NATS_INBOX_OPERATOR}.x",
    },
}


@pytest.mark.parametrize(
    ("user", "subject"),
    [
        pytest.param(u, s, id=f"{u}: {what}")
        for u, all_of in MAY_NOT_PUBLISH.items()
        for what, s in all_of.items()
    ],
)
async def test_a_role_may_publish_nothing_else(server: Bus, user: str, subject: str):
    """The server reports the violation."""
    async with server.user(user) as (client, errors):
        await client.publish(subject, b"x")
        await refused(errors, "permissions violation for publish")


@pytest.mark.parametrize("user", INBOXES)
async def test_a_role_may_hear_nothing_else(server: Bus, user: str):
    """A role hears only its own replies, and no proposals or reports of others.

    Only the publisher hears keys.
    """
    async with server.user(user) as (client, errors):
        inboxes = [f"{inbox}.>" for inbox in INBOXES.values() if inbox != INBOXES[user]]
        keys = [] if user == "publisher" else [key(CLUSTER), "$KV.>", "$JS.>"]
        subjects = [
            ">",
            "_INBOX.>",
            *inboxes,
            *keys,
            names.NATS_SUBJECT_PROPOSALS_ALL,
            names.NATS_SUBJECT_ACKS_ALL,
        ]
        for subject in subjects:
            errors.clear()
            await client.subscribe(subject)
            await refused(errors, f'permissions violation for subscription to "{subject.lower()}"')


@pytest.mark.parametrize(
    ("user", "password_of"),
    [
        (f"relay-{CLUSTER}", f"relay-{OTHER}"),
        ("relay", f"relay-{CLUSTER}"),
        ("relay", "publisher"),
        ("operator", "publisher"),
        ("publisher", "operator"),
    ],
)
async def test_passwords_are_not_shared(server: Bus, user: str, password_of: str):
    """Another cluster's password does not work, and there is no user for all relays."""
    with pytest.raises(nats.errors.Error, match="(?i)authorization"):
        async with server.user(user, password_of):
            pass


def test_the_server_does_not_start_without_a_password(tmp_path: Path):
    """The server does not start if a cluster's password is missing from the environment.

    There is no default, and no empty password.
    """
    files.write(tmp_path, bus.configuration([CLUSTER], templates.read(servers.ROOT / "infra")))
    process = servers.Server(
        url="",
        command=[str(servers.BIN / "nats-server"), "-c", str(tmp_path / "nats/nats.conf"), "-t"],
        environment={
            "NATS_LISTEN": "127.0.0.1:1",
            "NATS_MONITOR_LISTEN": "127.0.0.1:2",
            "NATS_DATA_DIR": "/x",
        }
        | {bus.password_variable(user): "s" for user in INBOXES},
        log=tmp_path / "server.log",
        ready=lambda: False,
    )
    assert bus.password_variable(f"relay-{CLUSTER}") not in os.environ
    with pytest.raises(RuntimeError, match="NATS_RELAY_ONE_PASSWORD"), servers.running(process):
        pass

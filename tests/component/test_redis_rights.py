"""Every user of infra/redis/users.acl on a real Redis, run by the stack's own starter.

Each may use its keys and commands and no others.
"""

import asyncio
import contextlib
import os
import subprocess

import permitted_redis
import pytest
import redis
from permitted_redis import RUN, USERS
from spillway_contracts import names
from spillway_contracts.hot_state import NetworkEntry
from spillway_optimizer.clients import hot
from spillway_optimizer.clients.lease import Lease
from spillway_publisher.clients.hot_state import HotState
from spillway_publisher.process.telemetry import Telemetry
from spillway_streams.clients.hot import Boards
from spillway_streams.process.counters import Counters
from spillway_streams.process.health import Status

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
KEYS = {
    "load": "spillway:load:west", "demand": "spillway:demand:west", "network": names.REDIS_KEY_NETWORK,
    "unknown": "spillway:unknown:west",
    "placement": "spillway:placement:west", "in_force": "spillway:ruleset:west", "policy": names.REDIS_KEY_POLICY,
    "lease of optimizer": "spillway:lease:optimizer", "fence of optimizer": "spillway:lease:optimizer:fence",
    "lease of papa": "spillway:lease:papa", "fence of papa": "spillway:lease:papa:fence",
    "checkpoint": names.REDIS_KEY_PAPA_CHECKPOINT, "another's": "mine", "none of ours": "spillway:other",
}  # fmt: skip
_READ = {"load", "demand", "network", "unknown", "placement", "in_force"}
MAY = {
    "streams": {"load", "demand", "network", "unknown", "placement"},
    "optimizer": _READ | {"policy", "lease of optimizer", "fence of optimizer"},
    "papa": _READ | {"checkpoint", "lease of papa", "fence of papa"},
    "publisher": {"in_force", "placement"},
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory):
    with permitted_redis.running(tmp_path_factory.mktemp("redis")) as made:
        yield made


@pytest.fixture
def connect(urls):
    with contextlib.ExitStack() as open_:
        yield lambda user: open_.enter_context(redis.Redis.from_url(urls[user]))


def refused(client: redis.Redis, *command: str) -> bool:
    try:
        client.execute_command(*command)
    except redis.exceptions.NoPermissionError:
        return True
    except redis.exceptions.ResponseError:
        return False  # wrong type or number of arguments: the command was permitted
    return False


@pytest.mark.parametrize("user", USERS)
def test_a_user_touches_its_keys_alone(connect, user):
    """Every key is tried with each of the user's commands that name one key.

    The keys are those of the contract and others. They are tried through a script too.
    """
    client = connect(user)
    tries = {
        "streams": [("GET", "{}"), ("HSET", "{}", "a", "b"), ("HGETALL", "{}"), ("PEXPIRE", "{}", "1000")],
        "optimizer": [("GET", "{}"), ("HGETALL", "{}"), ("DEL", "{}")],
        "papa": [("GET", "{}"), ("HGETALL", "{}"), ("DEL", "{}")],
        "publisher": [("SET", "{}", "a")],
    }[user]
    for name, key in KEYS.items():
        for command in tries:
            assert refused(client, *(part.format(key) for part in command)) == (name not in MAY[user]), (
                name,
                command,
            )
        if user != "publisher":
            call = ("EVAL", "return redis.call('EXISTS', KEYS[1])", "1", key)
            assert refused(client, *call) or name in MAY[user]


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize(
    "command",
    [("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("SCAN", "0"), ("CONFIG", "GET", "*"), ("CONFIG", "SET", "maxmemory", "1"),
     ("ACL", "LIST"), ("ACL", "SETUSER", "default", "nopass"), ("SHUTDOWN", "NOSAVE"), ("SAVE",), ("DEBUG", "SLEEP", "0"),
     ("REPLICAOF", "127.0.0.1", "1"), ("MONITOR",), ("SUBSCRIBE", "a"), ("PUBLISH", "a", "b"), ("CLIENT", "LIST"),
     ("MIGRATE", "h", "1", "k", "0", "1"), ("SCRIPT", "FLUSH"), ("RENAME", "spillway:network", "spillway:load:a"),
     ("MODULE", "LIST"), ("SWAPDB", "0", "1"), ("DUMP", "spillway:network")],
)  # fmt: skip
def test_nobody_administers(connect, user, command):
    """Only the administrator manages the server, its users, its settings and other clients."""
    assert refused(connect(user), *command)


def test_a_script_may_do_no_more_than_its_user(connect):
    """A key that is not named to EVAL is refused, and so is a command that the user may not run."""
    client = connect("streams")
    for script in (
        "redis.call('GET', 'spillway:policy')",
        "redis.call('HSET', 'spillway:policy', 'a', 'b')",
        "redis.call('FLUSHALL')",
    ):
        with pytest.raises(redis.exceptions.ResponseError, match="(?i)can't run|permission|can't access"):
            client.eval(script, 0)


def test_without_a_password_or_with_anothers_nothing_is_answered(urls):
    port = urls["default"].rpartition(":")[2]
    for url in (f"redis://127.0.0.1:{port}", f"redis://streams:wrong@127.0.0.1:{port}",
                urls["streams"].replace("streams", "publisher"), f"redis://nobody:x@127.0.0.1:{port}"):  # fmt: skip
        with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.AuthenticationError):
            client.ping()


async def test_every_program_does_its_work_as_its_user(urls):
    """The project's own code works with its own rights.

    It writes, prunes and reads boards, holds leases, and stores a checkpoint and rules.
    """
    status = Status(Boards.NAME)
    boards, entry = Boards(urls["streams"], 15.0, 60.0, status), NetworkEntry(1.0, 2.0, 3)
    await boards.put({KEYS["network"]: {"a>b": entry, "b>a": entry}})
    await boards.put({KEYS["network"]: {"a>b": NetworkEntry(1000.0, 2.0, 3)}})
    assert not status.problems()
    with redis.Redis.from_url(urls["publisher"]) as publisher:
        publisher.set(KEYS["placement"], "{}")
    assert await boards.placement(["west", "east"]) == {"west": b"{}", "east": None}
    for role in ("optimizer", "papa"):
        client = hot.connect(urls[role])
        stored = await hot.boards(client, ("west", "east"))
        assert ("a", "b") in stored.network
        assert await hot.in_force(client, ("west", "east")) is None
        assert stored.unknown == {}
        lease = Lease(client, role, 10)
        assert await lease.hold() and await lease.hold()
        await lease.release()
        await client.aclose()
    hot_state = HotState(urls["publisher"], Telemetry(), 2)
    await hot_state._write()
    await hot_state.close()


async def test_the_optimizer_hears_what_streams_announce(urls):
    """A change of demand, on the channel that both users have."""
    client, boards = hot.connect(urls["optimizer"]), Boards(urls["streams"], 15.0, 60.0, Status(Boards.NAME))
    listening = hot.changes(client)
    heard = asyncio.ensure_future(anext(listening))
    for _ in range(100):
        await boards.announce(["west", "east"])
        if (await asyncio.wait({heard}, timeout=0.1))[0]:
            break
    assert heard.result() == "west" and await anext(listening) == "east"
    await listening.aclose()
    await client.aclose()


async def test_an_announcement_that_is_refused_is_counted_and_no_problem_of_the_board(urls):
    """As with the rights of an earlier version: PAPA's user stands for one without the channel."""
    status, counters = Status(Boards.NAME), Counters()
    boards = Boards(urls["papa"], 15.0, 60.0, status, counters=counters)
    before = status.problems()
    await boards.announce(["west"])
    assert counters["changes_not_announced"] == 1 and status.problems() == before


def test_it_does_not_start_without_its_secrets():
    """Every missing variable is named. A partial set of users is not enough."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("REDIS_")}
    done = subprocess.run(RUN, env=clean, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 64
    assert {line.partition(":")[0] for line in done.stderr.splitlines()} == {
        "REDIS_BIND",
        "REDIS_PORT",
        "REDIS_PASSWORD",
    }
    given = clean | {
        "REDIS_BIND": "127.0.0.1",
        "REDIS_PORT": "1",
        "REDIS_PASSWORD": "a",
        "REDIS_PAPA_PASSWORD": "b",
    }
    done = subprocess.run(RUN, env=given, capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 64 and "REDIS_STREAMS_PASSWORD: not set" in done.stderr

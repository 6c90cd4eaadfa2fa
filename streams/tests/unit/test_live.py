"""What a job that writes boards states about services. Redis is replaced by a stand-in."""

from types import SimpleNamespace

import pytest
from google.protobuf import json_format
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names
from spillway_native import partition_of
from spillway_streams.batches.marks import Mark
from spillway_streams.boards import boards
from spillway_streams.boards.boards import HotTable, Window
from spillway_streams.boards.envoy import Report
from spillway_streams.jobs import live
from spillway_streams.jobs.live import Live
from spillway_streams.process.config import GraphSettings
from spillway_streams.process.counters import Counters
from test_known import arrivals

PARTITIONS = 2
SHOP = "a"  # the service of test_known's calls
NUMBER = partition_of(SHOP, PARTITIONS)


class Redis:
    """Records what is written, and holds heartbeats by cluster."""

    def __init__(self) -> None:
        self.heartbeats: dict[str, bytes] = {}
        self.written: dict[str, dict] = {}
        self.keeps = None
        self.announced: list[list[str]] = []

    async def placement(self, clusters: list[str]) -> dict[str, bytes | None]:
        return {cluster: self.heartbeats.get(cluster) for cluster in clusters}

    async def put(self, written: dict, owns: object, keeps: object) -> None:
        self.written, self.keeps = written, keeps

    async def announce(self, clusters: list[str]) -> None:
        self.announced.append(clusters)

    async def reach(self) -> None:
        pass


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
def hot(counters: Counters) -> HotTable:
    return HotTable(Window(5, 1.0), 100, counters)


@pytest.fixture
def other_hot(counters: Counters) -> HotTable:
    """The table of the other partition, for tests that add it to `ready`."""
    return HotTable(Window(5, 1.0), 100, counters)


@pytest.fixture
def ready(hot: HotTable) -> dict[int, SimpleNamespace]:
    """The worker's partitions."""
    return {NUMBER: SimpleNamespace(hot=hot)}


@pytest.fixture
def board(redis: Redis, ready, counters: Counters, tmp_path, monkeypatch):
    """A function that writes all boards at a second, and returns service -> reason for west."""
    settings = GraphSettings(
        kafka="localhost:1", clickhouse_url="clickhouse://localhost", redis_url="redis://localhost",
        state_dir=tmp_path, health_listen="localhost:1", unknown_hold_s=60,
    )  # fmt: skip
    clock = SimpleNamespace(now=0.0)
    fake = SimpleNamespace(time=lambda: clock.now, monotonic=lambda: clock.now)
    monkeypatch.setattr(live, "time", fake)
    states = SimpleNamespace(ready=ready)
    context = SimpleNamespace(
        settings=settings, counters=counters, layout=SimpleNamespace(partitions=PARTITIONS)
    )
    made = Live(None, context, redis, states, None, entries_only=True)

    async def at(now: float) -> dict[str, str]:
        clock.now = now
        await made.board(
            names.REDIS_KEY_DEMAND,
            lambda state, times: boards.demand_board(state.hot, times),
            says_unknown=True,
        )
        found = redis.written.get(names.REDIS_KEY_UNKNOWN.format(cluster="west"), {})
        return {service: entry.reason for service, entry in found.items()}

    return at


def _heartbeat(cluster: str = "west", **services: int) -> bytes:
    made = Heartbeat(cluster=cluster)
    for service, count in services.items():
        made.services.add(service=service, connected_envoys=count)
    return json_format.MessageToJson(made).encode()


def _named(prefix: str, number: int) -> str:
    """Returns the name of a service in this partition."""
    names_ = (f"{prefix}{n}" for n in range(99))
    return next(name for name in names_ if partition_of(name, PARTITIONS) == number)


def _count(hot: HotTable, at: float, start: float, *places: tuple[str, str]) -> None:
    """Adds a report without requests from one Envoy of each of these services."""
    reports = [Report(*place, "e1", int(at * 1e9), int(start * 1e9), {}) for place in places]
    hot.totals.add(reports, at)


def _spans(hot: HotTable, first: int, end: int, start: float) -> None:
    """Adds ten calls per second of the shop in west."""
    for now in range(first, end):
        batch = arrivals({"west": now - 1}, 10)
        hot.add(batch, start + now, 0, Mark(0, 1, now, now + 1, start + now, boards.newest_ends(batch)))


async def test_what_a_heartbeat_names_is_known_or_unknown_for_as_long_as_it_does(redis, hot, board):
    """Only services of this partition have a statement.

    While spans arrive, both services are known, including the one without requests. When spans
    stop, both are unknown, with the last demand, long after boards would drop it. The fields never
    become too old.
    """
    start = 1_700_000_000
    other, idle = _named("other", 1 - NUMBER), _named("idle", NUMBER)
    redis.heartbeats["west"] = _heartbeat(**{SHOP: 1, idle: 1, other: 1})
    _spans(hot, 1, 21, start)
    assert await board(start + 20) == {SHOP: "", idle: ""}
    key = names.REDIS_KEY_DEMAND.format(cluster="west")
    before = redis.written[key]
    for now in (40, 100, 100_000):
        reasons = await board(start + now)
        assert reasons.keys() == {SHOP, idle} and all(reasons.values())
        assert redis.written[key] == before and before
        assert redis.keeps(key, f"{other} GET /") and not redis.keeps(key, "gone GET /")
    redis.heartbeats.clear()
    await board(start + 100_002)
    assert await board(start + 100_004) == {} and not redis.written.get(key)


async def test_an_envoy_that_is_connected_and_silent_leaves_its_service_unknown(redis, hot, board):
    """One of two Envoys reports zero, the other nothing: unknown until the heartbeat has one."""
    start = 1_700_000_000
    _spans(hot, 1, 21, start)
    for connected, first, is_known in ((2, 21, False), (1, 60, True)):
        redis.heartbeats["west"] = _heartbeat(**{SHOP: connected})
        for now in range(first, first + 20):
            sent_ns = int((start + now) * 1e9)
            hot.totals.add([Report("west", SHOP, "e1", sent_ns, start * 10**9, {})], start + now)
            reasons = await board(start + now)
        assert (reasons[SHOP] == "") == is_known, reasons


async def _second(hot: HotTable, other_hot: HotTable, now: int, start: float, shop: tuple[str, ...]) -> None:
    """Adds spans of the shop in these clusters. The other partition gets marks without rows."""
    batch = arrivals(dict.fromkeys(shop, now - 1), 10)
    nothing = arrivals({}, 10)
    mark = Mark(0, 1, now, now + 1, start + now, boards.newest_ends(batch))
    hot.add(batch, start + now, 0, mark)
    other_hot.add(nothing, start + now, 0, mark)


async def test_silence_is_judged_service_by_service_and_not_by_who_shares_its_partition(
    redis, hot, other_hot, ready, board, counters
):
    """Each service is judged by itself.

    No proxy of east sends counters, so an idle service of east has a known zero, even beside
    counted services of west in its partition. In west some services send counters. A service there
    whose counters and spans have never arrived is unknown, even if it is alone in its partition.
    After ten minutes it counts as idle. Once spans of it have arrived, they decide. A service that
    has sent counters stays unknown if its worker has lost them.
    """
    start, key = 1_700_000_000, names.REDIS_KEY_UNKNOWN
    ready[1 - NUMBER] = SimpleNamespace(hot=other_hot)
    standby, alone, known = _named("standby", NUMBER), _named("alone", 1 - NUMBER), _named("known", NUMBER)
    redis.heartbeats["west"] = _heartbeat(**{known: 1, standby: 1, alone: 1, SHOP: 1})
    redis.heartbeats["east"] = _heartbeat("east", **{standby: 1, alone: 1, SHOP: 1})

    def statements(cluster: str) -> dict[str, bool]:
        return {service: not e.reason for service, e in redis.written[key.format(cluster=cluster)].items()}

    for now in range(1, 700):
        await _second(hot, other_hot, now, start, ("west", "east") if now < 120 or now > 600 else ("west",))
        _count(hot, start + now, start, ("west", known))
        await board(start + now)
        if 20 < now < 110 or now > 620:
            assert statements("east") == {standby: True, alone: True, SHOP: True}, now
        if 20 < now < 600:
            assert statements("west") == {known: True, standby: False, alone: False, SHOP: True}, now
    assert statements("west") == {known: True, standby: True, alone: True, SHOP: True}
    assert counters["services_without_counters_taken_for_idle"] == 2
    hot.totals.__init__(5, 100, 10, counters)
    for now in range(700, 720):
        await _second(hot, other_hot, now, start, ("west", "east"))
        await board(start + now)
    assert statements("west") == {known: False, standby: True, alone: True, SHOP: True}


async def test_a_change_of_load_is_announced_after_its_board(redis, hot, board):
    """A steady load is not announced, and neither is one whose change is older than the window."""
    start, requests = 1_700_000_000, 0
    redis.heartbeats["west"] = _heartbeat(**{SHOP: 1})
    for now in range(1, 40):
        requests += 10 if now < 20 else 200
        sent_ns, counts = int((start + now) * 1e9), {(f"{SHOP} GET /", True): requests}
        hot.totals.add([Report("west", SHOP, "e1", sent_ns, (start - 99) * 10**9, counts)], start + now)
        _spans(hot, now, now + 1, start)
        await board(start + now)
        changed = 20 <= now < 24
        assert redis.announced == ([["west"]] if changed else []), now
        redis.announced.clear()

"""The optimizer and PAPA as processes, against real Redis, NATS and ClickHouse."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nats
import pytest
import redis
from clickhouse_driver import Client
from google.protobuf import json_format
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import names, topology
from spillway_contracts import ruleset as contract
from spillway_lab.testing import servers
from spillway_optimizer.history import History

pytestmark = pytest.mark.component

ROOT = Path(__file__).resolve().parents[3]
TOPOLOGY = ROOT / "contracts" / "golden" / "topology.yaml"
MODEL = json.loads((ROOT / "optimizer" / "tests" / "unit" / "data" / "model.json").read_text())
CLUSTERS = ("west", "east")
BACKEND = "backend GET /items/{id}"


class World:
    """The optimizer's surroundings: fills boards every half second, as streams/ and the publisher would."""

    def __init__(
        self,
        redis_server: servers.Server,
        nats_server: servers.Server,
        clickhouse: servers.Server,
        folder: Path,
    ):
        self.redis_server, self.nats_server, self.clickhouse_server = redis_server, nats_server, clickhouse
        self.nats_url, self.clickhouse_url, self.folder = nats_server.url, clickhouse.url, folder
        self.redis = redis.Redis.from_url(redis_server.url, decode_responses=True)
        self.clickhouse = Client.from_url(clickhouse.url)
        self.model = json.loads(json.dumps(MODEL))
        self.age_s = 0.0
        self.placed = {c: {"gateway", "frontend", "backend"} for c in CLUSTERS}
        self.publishing = False
        self.on_publish: Callable[[Ruleset], None] = lambda ruleset: None
        self.version = 0
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def fill_history(self) -> None:
        now = datetime.now(UTC)
        for table, column in (
            ("curves", "fitted_at"),
            ("capacities", "measured_at"),
            ("call_ratios", "window_end"),
        ):
            rows = [{**row, column: now} for row in self.model[table]]
            self.clickhouse.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES", rows)

    def start(self) -> None:
        self._stop.clear()
        self._threads = [threading.Thread(target=self._boards, daemon=True)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._publisher()), daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(5)

    def _boards(self) -> None:
        while not self._stop.wait(0.3):
            with contextlib.suppress(redis.RedisError):
                self._write_boards(time.time() - self.age_s)

    def _write_boards(self, at: float) -> None:
        for cluster in CLUSTERS:
            for name, key in (("load", names.REDIS_KEY_LOAD), ("demand", names.REDIS_KEY_DEMAND)):
                board = {k: json.dumps({**v, "at": at}) for k, v in self.model[name][cluster].items()}
                self.redis.hset(key.format(cluster=cluster), mapping=board)
            heartbeat = Heartbeat(cluster=cluster, ttl_seconds=10)
            for service in sorted(self.placed[cluster]):
                heartbeat.services.add(service=service, connected_envoys=1)
            self.redis.set(
                names.REDIS_KEY_PLACEMENT.format(cluster=cluster), json_format.MessageToJson(heartbeat), ex=10
            )
        network = {pair: json.dumps({**v, "at": at}) for pair, v in self.model["network"].items()}
        self.redis.hset(names.REDIS_KEY_NETWORK, mapping=network)

    async def _publisher(self) -> None:
        """Puts every proposal in force at once, while `publishing`."""
        client = await nats.connect(self.nats_url)
        subscription = await client.subscribe(names.NATS_SUBJECT_PROPOSALS_ALL)
        while not self._stop.is_set():
            with contextlib.suppress(nats.errors.TimeoutError):
                message = await subscription.next_msg(timeout=0.3)
                if self.publishing:
                    self._publish(Ruleset.FromString(message.data))
        await client.close()

    def _publish(self, ruleset: Ruleset) -> None:
        self.version += 1
        for cluster in CLUSTERS:
            part = Ruleset()
            part.CopyFrom(ruleset)
            part.version = self.version
            del part.rules[:]
            part.rules.extend(rule for rule in ruleset.rules if rule.source_cluster == cluster)
            self.redis.set(names.REDIS_KEY_IN_FORCE.format(cluster=cluster), json_format.MessageToJson(part))
        self.on_publish(ruleset)

    def proposals(self, origin: str = "optimizer") -> list[Ruleset]:
        """Everything that JetStream has stored of one origin, oldest first."""
        return asyncio.run(self._stored(names.NATS_SUBJECT_PROPOSALS.format(origin=origin)))

    async def _stored(self, subject: str) -> list[Ruleset]:
        client = await nats.connect(self.nats_url)
        try:
            js = client.jetstream()
            consumer = await js.subscribe(subject, ordered_consumer=True)
            found = []
            with contextlib.suppress(nats.errors.TimeoutError):
                while True:
                    found.append(Ruleset.FromString((await consumer.next_msg(timeout=0.5)).data))
            return found
        except nats.js.errors.NotFoundError:
            return []
        finally:
            await client.close()

    def solves(self) -> list[tuple[str, str, str]]:
        return self.clickhouse.execute("SELECT outcome, policy, reason FROM solves ORDER BY at")

    def papa_outcomes(self) -> list[str]:
        return [
            outcome for (outcome,) in self.clickhouse.execute("SELECT outcome FROM papa_steps ORDER BY at")
        ]

    @contextlib.contextmanager
    def process(self, role: str, **environment: str) -> Iterator["Process"]:
        process = Process(self, role, environment)
        try:
            process.wait_ready()
            yield process
        finally:
            process.end()


class Process:
    def __init__(self, world: World, role: str, environment: dict[str, str]):
        self.port = servers.free_port()
        self.log = world.folder / f"{role}-{self.port}.log"
        settings = {
            "SPILLWAY_TOPOLOGY": str(TOPOLOGY),
            "SPILLWAY_REDIS_URL": world.redis_server.url,
            "SPILLWAY_CLICKHOUSE_URL": world.clickhouse_url,
            "SPILLWAY_NATS_URL": world.nats_url,
            "SPILLWAY_HEALTH_LISTEN": f"127.0.0.1:{self.port}",
            "SPILLWAY_POLICY": "spillway",
            "SPILLWAY_OPTIMIZER_PERIOD_S": "0.5",
            "SPILLWAY_OPTIMIZER_RENEW_S": "3",
            "SPILLWAY_OPTIMIZER_LEASE_S": "2",
            "SPILLWAY_OPTIMIZER_DEMAND_HALF_LIFE_S": "0",
            "SPILLWAY_PAPA_LEASE_S": "3",
            **environment,
        }
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "spillway_optimizer", role],
                env=os.environ | settings,
                stdout=log,
                stderr=log,
            )

    def health(self) -> dict | None:
        """The body of a 200, else None."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=1) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return None

    def wait_ready(self) -> None:
        eventually(self.health, "healthy", 40, lambda: self.log.read_text()[-2000:])

    def end(self) -> None:
        if self.popen.poll() is None:
            asked = time.monotonic()
            self.popen.send_signal(signal.SIGTERM)
            assert self.popen.wait(20) == 0, self.log.read_text()[-2000:]
            self.stopped_in_s = time.monotonic() - asked


def eventually(condition: Callable[[], object], what: str, seconds: float = 30, context=lambda: ""):
    """The condition's first true value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s: {what} {context()}")


@pytest.fixture(scope="module")
def backends(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backends")
    with (
        servers.redis_process(folder) as redis_server,
        servers.nats_process(folder) as nats_server,
        servers.clickhouse_process(folder) as clickhouse_server,
    ):
        yield redis_server, nats_server, clickhouse_server


@pytest.fixture
def world(backends, tmp_path):
    world = World(*backends, tmp_path)
    world.redis.flushall()
    for table in ("curves", "capacities", "call_ratios", "solves", "papa_steps"):
        world.clickhouse.execute(f"TRUNCATE TABLE {table}")
    asyncio.run(_forget_proposals(world.nats_url))
    world.fill_history()
    world.start()
    yield world
    world.stop()
    world.clickhouse.disconnect()


async def _forget_proposals(url: str) -> None:
    client = await nats.connect(url)
    with contextlib.suppress(nats.js.errors.NotFoundError):
        await client.jetstream().delete_stream(names.NATS_STREAM_PROPOSALS)
    await client.close()


def _west(ruleset: Ruleset, service: str) -> dict[str, int]:
    rule = next(r for r in ruleset.rules if (r.source_cluster, r.source_service) == ("west", service))
    return {d.cluster: d.weight for d in rule.destinations}


def test_boards_become_a_verified_proposal_that_is_renewed_and_follows_the_policy(world):
    """One life of the service: a sound proposal in JetStream, its row in ClickHouse, a renewal with a newer
    window, a policy switch at once, an unknown policy ignored, SIGTERM within 5 s."""
    world.publishing = True
    with world.process("run") as process:
        first = eventually(world.proposals, "a proposal")[0]
        assert contract.check(first, topology.load(TOPOLOGY)) == []
        assert (first.origin, first.policy, first.version) == (Origin.ORIGIN_OPTIMIZER, "spillway", 0)
        assert 7000 < _west(first, "gateway")["west"] < 9000
        assert 25 < first.predicted.mean_latency_ms < 32
        assert all(rule.reason for rule in first.rules) and len(first.traffic_classes) == 3
        renewed = eventually(lambda: world.proposals()[1:], "a renewal")[0]
        assert renewed.rules[0].destinations == first.rules[0].destinations
        assert renewed.input_window.id != first.input_window.id
        _policy_command(world, "waterfall")
        switched = eventually(lambda: [p for p in world.proposals() if p.policy == "waterfall"], "waterfall")[
            0
        ]
        assert _west(switched, "gateway") == {"west": 10_000}
        assert 8800 < _west(switched, "frontend")["west"] < 8950
        world.redis.set(names.REDIS_KEY_POLICY, "fastest")
        eventually(lambda: "unknown 'fastest'" in process.log.read_text(), "the complaint")
        assert "allowed: failover, local, spillway, waterfall" in process.log.read_text()
        eventually(
            lambda: {"proposed", "renewed", "unchanged"} <= {o for o, _, _ in world.solves()}, "solve rows"
        )
        process.end()
        assert process.stopped_in_s < 5
        assert world.redis.get(names.REDIS_KEY_LEASE.format(role="optimizer")) is None


def _policy_command(world: World, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spillway_optimizer", "policy", name],
        env=os.environ | {"SPILLWAY_REDIS_URL": world.redis_server.url},
        capture_output=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr


def test_stale_boards_are_refused_and_said_so(world):
    """Telemetry a minute old: no proposal, a row that names the board, and recovery once it is fresh."""
    world.age_s = 60
    with world.process("run"):
        rows = eventually(world.solves, "a refusal")
        assert rows[0][0] == "refused" and "'west' is 60 s old" in rows[0][2]
        assert world.proposals() == []
        world.age_s = 0
        eventually(world.proposals, "a proposal")


def test_only_the_newest_rows_of_the_last_hour_are_the_model(world):
    """Of three curves of a class the newest is read; what is older than an hour does not count at all."""
    now = datetime.now(UTC)
    row = next(r for r in world.model["curves"] if r["class"] == BACKEND)
    rows = [
        {**row, "fitted_at": now + timedelta(seconds=1), "a_ms": 5.5},
        {**row, "fitted_at": now - timedelta(minutes=1), "a_ms": 4.4},
        {**row, "fitted_at": now - timedelta(hours=2), "class": "backend GET /old"},
    ]
    world.clickhouse.execute(f"INSERT INTO curves ({', '.join(row)}) VALUES", rows)
    history = History(world.clickhouse_url)
    found = {r.class_id: r for r in history.model().curves}
    history.close()
    assert found[BACKEND].a_ms == 5.5
    assert found[BACKEND].fitted_at == pytest.approx(now.timestamp() + 1, abs=0.01)
    assert "backend GET /old" not in found


def test_a_service_that_leaves_its_heartbeat_leaves_the_rules(world):
    """East's backend is drained: the next proposal sends nothing there."""
    world.publishing = True
    with world.process("run"):
        eventually(world.proposals, "a proposal")
        world.placed["east"] -= {"backend"}

        def drained():
            rules = world.proposals()[-1].rules
            backend = [r for r in rules if r.traffic_class.service == "backend"]
            return backend and all(d.cluster == "west" for r in backend for d in r.destinations)

        eventually(drained, "rules without east's backend")


def test_one_leader_proposes_and_a_standby_takes_over(world):
    """Two processes, one lease: after kill -9 of the leader the other proposes."""
    with world.process("run", SPILLWAY_POLICY="spillway") as leader:
        eventually(world.proposals, "a proposal")
        with world.process("run", SPILLWAY_POLICY="local") as standby:
            time.sleep(1.5)
            assert {p.policy for p in world.proposals()} == {"spillway"}
            leader.popen.kill()
            leader.popen.wait()
            eventually(lambda: world.proposals()[-1].policy == "local", "the standby's proposal")
            assert "standing by" in standby.log.read_text()


def test_the_service_outlives_redis(world):
    """Redis is killed and comes back empty: the process stays, says so, and proposes again."""
    with world.process("run") as process:
        before = len(eventually(world.proposals, "a proposal"))
        world.redis_server.kill()
        eventually(lambda: "redis: away" in process.log.read_text(), "the complaint")
        world.redis_server.start()
        eventually(lambda: len(world.proposals()) > before, "a proposal after the restart")
        assert process.popen.poll() is None


def test_an_operators_policy_outlives_redis(world):
    """The policy that an operator set is followed, and written back, after Redis has lost it."""
    world.publishing = True
    with world.process("run", SPILLWAY_POLICY="local"):
        world.redis.set(names.REDIS_KEY_POLICY, "waterfall")
        eventually(lambda: any(r.policy == "waterfall" for r in world.proposals()), "the operator's policy")
        world.redis.delete(names.REDIS_KEY_POLICY)
        eventually(lambda: world.redis.get(names.REDIS_KEY_POLICY) == "waterfall", "the policy back in Redis")


def test_the_service_outlives_nats(world):
    """NATS is killed: every solve meanwhile is a row that says so, and proposals go on after its return."""
    with world.process("run") as process:
        before = len(eventually(world.proposals, "a proposal"))
        world.nats_server.kill()
        _policy_command(world, "waterfall")
        eventually(
            lambda: any("nats is away" in reason for _, _, reason in world.solves()), "a row that says so"
        )
        world.nats_server.start()
        eventually(lambda: len(world.proposals()) > before, "a proposal after the restart")
        assert world.proposals()[-1].policy == "waterfall"
        assert process.popen.poll() is None


def test_the_service_outlives_clickhouse(world):
    """ClickHouse is killed: the last model goes on deciding, its rows wait and are written on its return."""
    with world.process("run") as process:
        before = len(eventually(world.proposals, "a proposal"))
        world.clickhouse.disconnect()
        world.clickhouse_server.kill()
        eventually(lambda: "clickhouse: away" in process.log.read_text(), "the complaint")
        eventually(lambda: len(world.proposals()) > before, "a renewal without ClickHouse")
        renewed = process.health()["counters"]["renewed"]
        world.clickhouse_server.start()
        eventually(
            lambda: [o for o, _, _ in world.solves()].count("renewed") >= renewed, "the rows that waited"
        )


def test_papa_keeps_what_helps_and_rolls_back_what_does_not(world):
    """East's backend is slower than predicted, west's faster: PAPA moves weight to west. While every step
    towards west lowers what users feel it is kept; once it does not, it is rolled back."""
    world.publishing = True
    helps = True

    def feel(ruleset: Ruleset) -> None:
        # Users feel the west share of gateway's calls, for better or worse.
        away = _west(ruleset, "gateway").get("east", 0) / 10_000
        for cluster in CLUSTERS:
            demand = world.model["demand"][cluster]["gateway GET /items/{id}"]
            demand["duration_ms"] = 60.0 + (100.0 if helps else -100.0) * away

    world.on_publish = feel
    for cluster, factor in (("east", 4.0), ("west", 0.5)):
        world.model["load"][cluster]["frontend GET /items/{id}"]["exclusive_ms"] *= factor
    quick = {"SPILLWAY_PAPA_TAU_S": "3", "SPILLWAY_PAPA_SETTLE_S": "1", "SPILLWAY_PAPA_THETA": "2"}
    with world.process("run"):
        start = _west(eventually(world.proposals, "a proposal")[0], "gateway")
        with world.process("papa", **quick) as papa:
            eventually(
                lambda: "kept" in world.papa_outcomes(),
                "a kept step",
                60,
                lambda: papa.log.read_text()[-2000:],
            )
            step = world.proposals("papa")[0]
            assert step.origin == Origin.ORIGIN_PAPA and step.policy == "spillway"
            assert _west(step, "gateway")["west"] == pytest.approx(start["west"] + 500, abs=1)
            assert contract.check(step, topology.load(TOPOLOGY)) == []
            helps = False
            eventually(
                lambda: "rolled_back" in world.papa_outcomes(),
                "a step rolled back",
                90,
                lambda: papa.log.read_text()[-2000:],
            )

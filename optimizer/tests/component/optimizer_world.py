"""The optimizer's surroundings in component tests: its inputs, a publisher, and its outputs."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import nats
import redis
from clickhouse_driver import Client
from google.protobuf import json_format
from optimizer_process import Process
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_lab.testing import servers
from spillway_lab.testing.waiting import STOP_S, WAIT_S

MODEL = json.loads((Path(__file__).resolve().parents[1] / "unit" / "data" / "model.json").read_text())
CLUSTERS = ("west", "east")


class World:
    """The surroundings of the optimizer.

    Fills the boards and the placement every 0.3 s, as streams and the publisher would. `age_s`
    makes the boards older.
    """

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
        self.whole = Ruleset()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def fill_history(self) -> None:
        """Writes the model's curves, capacities and call ratios to ClickHouse, as of now."""
        now = datetime.now(UTC)
        for table, column in (
            ("curves", "fitted_at"),
            ("capacities", "measured_at"),
            ("call_ratios", "window_end"),
        ):
            rows = [{**row, column: now} for row in self.model[table]]
            self.clickhouse.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES", rows)

    def start(self) -> None:
        """Starts to fill the boards, and starts the publisher."""
        self._stop.clear()
        self._threads = [threading.Thread(target=self._boards, daemon=True)]
        self._threads.append(threading.Thread(target=lambda: asyncio.run(self._publisher()), daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_S)

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
        """Puts every proposal in force at once while `publishing` is true."""
        client = await nats.connect(self.nats_url)
        subscription = await client.subscribe(names.NATS_SUBJECT_PROPOSALS_ALL)
        while not self._stop.is_set():
            with contextlib.suppress(nats.errors.TimeoutError):
                message = await subscription.next_msg(timeout=0.3)
                if self.publishing:
                    self._publish(Ruleset.FromString(message.data))
        await client.close()

    def _publish(self, ruleset: Ruleset) -> None:
        """Publishes a ruleset like a publisher without guardrails.

        Unlike the real publisher, it does not record who changed which of the optimizer's rules,
        and when.
        """
        self.version += 1
        whole = ruleset
        if ruleset.partial:  # it replaces one rule of the ruleset in force
            whole, (changed,) = self.whole, ruleset.rules
            kept = [r for r in whole.rules if _key(r) != _key(changed)]
            del whole.rules[:]
            whole.rules.extend([*kept, changed])
            whole.id, whole.origin = ruleset.id, ruleset.origin
            changed = whole.rules[-1]
            changed.changed_version, changed.changed_by = self.version, ruleset.origin
        self.whole = ruleset = whole
        for cluster in CLUSTERS:
            part = Ruleset()
            part.CopyFrom(whole)
            part.version = self.version
            del part.rules[:]
            part.rules.extend(rule for rule in ruleset.rules if rule.source_cluster == cluster)
            self.redis.set(names.REDIS_KEY_IN_FORCE.format(cluster=cluster), json_format.MessageToJson(part))
        self.on_publish(ruleset)

    def command_policy(self, name: str) -> None:
        """Switches the policy with the operator's command."""
        done = subprocess.run(
            [sys.executable, "-m", "spillway_optimizer", "policy", name],
            env=os.environ | {"SPILLWAY_REDIS_URL": self.redis_server.url},
            capture_output=True,
            timeout=WAIT_S,
        )
        assert done.returncode == 0, done.stderr

    def proposals(self, origin: str = "optimizer") -> list[Ruleset]:
        """Returns all proposals of one origin that JetStream stores at this time, oldest first."""
        return asyncio.run(self._stored(names.NATS_SUBJECT_PROPOSALS.format(origin=origin)))

    async def _stored(self, subject: str) -> list[Ruleset]:
        client = await nats.connect(self.nats_url)
        try:
            js = client.jetstream(timeout=WAIT_S)
            last = (await js.get_last_msg(names.NATS_STREAM_PROPOSALS, subject)).seq
            consumer, found, reached = await js.subscribe(subject, ordered_consumer=True), [], 0
            while reached < last:
                message = await consumer.next_msg(timeout=WAIT_S)
                found.append(Ruleset.FromString(message.data))
                reached = message.metadata.sequence.stream
            return found
        except nats.js.errors.NotFoundError:
            return []  # no stream, or no message of this subject
        finally:
            await client.close()

    def solves(self) -> list[tuple[str, str, str]]:
        """Returns (outcome, policy, reason) of all solves, oldest first."""
        return self.clickhouse.execute("SELECT outcome, policy, reason FROM solves ORDER BY at")

    def papa_outcomes(self) -> list[str]:
        """Returns the outcomes of PAPA's steps, oldest first."""
        return [
            outcome for (outcome,) in self.clickhouse.execute("SELECT outcome FROM papa_steps ORDER BY at")
        ]

    @contextlib.contextmanager
    def process(self, role: str, **environment: str) -> Iterator[Process]:
        """Runs a role of the optimizer until the block ends.

        The block begins when the process is healthy. At its end the process must exit with code 0.
        """
        addresses = {
            "SPILLWAY_REDIS_URL": self.redis_server.url,
            "SPILLWAY_CLICKHOUSE_URL": self.clickhouse_url,
            "SPILLWAY_NATS_URL": self.nats_url,
        }
        process = Process(role, self.folder, addresses | environment)
        try:
            process.wait_ready()
            yield process
        finally:
            process.end()


def _key(rule) -> tuple:
    """What identifies a rule within a ruleset."""
    return rule.source_cluster, rule.source_service, rule.traffic_class.SerializeToString()


def west(ruleset: Ruleset, service: str) -> dict[str, int]:
    """Returns the destinations' weights in the rule for calls of `service` in west."""
    rule = next(r for r in ruleset.rules if (r.source_cluster, r.source_service) == ("west", service))
    return {d.cluster: d.weight for d in rule.destinations}

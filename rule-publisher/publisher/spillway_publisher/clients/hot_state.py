"""Redis: the rulesets in force and the placements, as protobuf JSON.

This process keeps all values and writes them again every few seconds. So a Redis that has lost
everything is complete again within one period. A ruleset never replaces a higher version, because a
publisher that has lost NATS goes on writing the last version that it knew.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from redis.exceptions import RedisError
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names, redis_client

from spillway_publisher.process.telemetry import REDIS, Telemetry

# Replaces a ruleset unless the key holds a higher version, which another publisher has written. A
# value is overwritten when it is unreadable or has a version that no relay accepts. KEYS: the key;
# ARGV: text, its version, the highest version.
PUT_HIGHER = """
    local held = redis.call('get', KEYS[1])
    if held == ARGV[1] then return 1 end
    if held then
        local readable, ruleset = pcall(cjson.decode, held)
        local version = readable and type(ruleset) == 'table' and tonumber(ruleset.version) or 0
        if version > tonumber(ARGV[2]) and version <= tonumber(ARGV[3]) then return 0 end
    end
    redis.call('set', KEYS[1], ARGV[1])
    return 1
"""


@dataclass(frozen=True)
class Value:
    """The value that a key should hold.

    It is dropped at `until` (`time.monotonic`; None: never).
    """

    text: str
    until: float | None
    version: int = 0  # for a ruleset: the write does not replace a higher version


class HotState:
    """`in_force` and `place` only note the values; `run` writes them."""

    def __init__(
        self, url: str, telemetry: Telemetry, refresh_s: float, options: dict[str, Any] | None = None
    ) -> None:
        """`options`: arguments of the connection, in addition to the url."""
        more = options or {}
        self._redis = redis_client.connect(url, socket_timeout=2, socket_connect_timeout=2, **more)
        self._telemetry, self._refresh_s = telemetry, refresh_s
        self._values: dict[str, Value] = {}
        self._rulesets: dict[str, Ruleset] = {}
        self._changed = asyncio.Event()

    def in_force(self, rulesets: dict[str, Ruleset]) -> None:
        """Notes the rulesets by cluster, without what is on trial. Their keys never expire."""
        for cluster, stored in rulesets.items():
            ruleset = Ruleset()
            ruleset.CopyFrom(stored)
            ruleset.ClearField("canary")
            if self._rulesets.get(cluster) == ruleset:
                continue
            self._rulesets[cluster] = ruleset
            self._put(
                names.REDIS_KEY_IN_FORCE.format(cluster=cluster),
                Value(to_json(ruleset), None, ruleset.version),
            )

    def place(self, placement: Heartbeat, until: float) -> None:
        """Notes a placement. Its key expires at `until`, by `time.monotonic`.

        Setting this host's clock therefore removes no placement. Where the clock of Redis is set
        forward, Redis drops the key until it is written again, at most `refresh_s` later.
        """
        self._put(
            names.REDIS_KEY_PLACEMENT.format(cluster=placement.cluster), Value(to_json(placement), until)
        )

    async def run(self) -> None:
        """Writes for ever: at once when a value changes, and all values every period."""
        while True:
            try:
                await self._write()
                self._telemetry.servers.ok(REDIS)
            except (RedisError, OSError, TimeoutError) as error:
                self._telemetry.servers.failed(REDIS, error)
                await asyncio.sleep(min(0.5, self._refresh_s))
                continue
            try:
                await asyncio.wait_for(self._changed.wait(), self._refresh_s)
            except TimeoutError:
                pass

    async def close(self) -> None:
        await self._redis.aclose()

    def _put(self, key: str, value: Value) -> None:
        if self._values.get(key) != value:
            self._values[key] = value
            self._changed.set()

    async def _write(self) -> None:
        self._changed.clear()
        now = time.monotonic()
        self._values = {k: v for k, v in self._values.items() if v.until is None or v.until > now}
        if not self._values:
            await self._redis.ping()
            return
        async with self._redis.pipeline(transaction=False) as pipeline:
            for key, value in self._values.items():
                ttl_ms = None if value.until is None else max(1, int((value.until - now) * 1000))
                if value.version:
                    highest = int(time.time() * 1000) + names.VALUE_VERSION_AHEAD_MS
                    pipeline.eval(PUT_HIGHER, 1, key, value.text, value.version, highest)
                else:
                    pipeline.set(key, value.text, px=ttl_ms)
            written = await pipeline.execute()
        if older := sum(answer == 0 for answer in written):
            self._telemetry.counters["hot_state.older_rulesets"] += older


def to_json(message: Ruleset | Heartbeat) -> str:
    """Returns one line of protobuf JSON with the field names of the .proto files."""
    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)

"""Redis: boards, placement, rules in force, policy. With lease.py the only file that reads them."""

from dataclasses import dataclass

from google.protobuf import json_format
from redis.asyncio import Redis
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import ContractError, names, traffic_class
from spillway_contracts.hot_state import DemandEntry, LoadBoardEntry, NetworkEntry

from spillway_optimizer.rules import Rules, of_ruleset
from spillway_optimizer.telemetry import Telemetry

_TIMEOUT_S = 2.0


def connect(url: str) -> Redis:
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        health_check_interval=5,
    )


@dataclass(frozen=True)
class InForce:
    """What the publisher last published, all clusters together."""

    rules: Rules
    origin: Origin  # of the newest version among the clusters
    policy: str
    versions: dict[str, int]  # by cluster
    ruleset_id: str
    rulesets: dict[str, Ruleset]  # by cluster

    @property
    def version(self) -> int:
        return max(self.versions.values(), default=0)


async def boards(redis: Redis, clusters: tuple[str, ...]) -> Telemetry:
    """The Redis half of Telemetry; entries that cannot be read are in `malformed`."""
    bad: list[str] = []
    load = {
        c: _board(await redis.hgetall(names.REDIS_KEY_LOAD.format(cluster=c)), LoadBoardEntry, bad)
        for c in clusters
    }
    demand = {
        c: _board(await redis.hgetall(names.REDIS_KEY_DEMAND.format(cluster=c)), DemandEntry, bad)
        for c in clusters
    }
    network = {}
    for pair, text in (await redis.hgetall(names.REDIS_KEY_NETWORK)).items():
        source, arrow, destination = pair.partition(">")
        try:
            if not arrow:
                raise ContractError(f"network[{pair!r}]: expected 'from>to'")
            network[source, destination] = NetworkEntry.from_json(text)
        except ContractError as error:
            bad.append(str(error))
    placement = {
        c: _services(await redis.get(names.REDIS_KEY_PLACEMENT.format(cluster=c)), c, bad) for c in clusters
    }
    return Telemetry(load=load, demand=demand, network=network, placement=placement, malformed=tuple(bad))


def _board(hashed: dict[str, str], kind, bad: list[str]) -> dict:
    board = {}
    for class_id, text in hashed.items():
        try:
            traffic_class.parse(class_id)
            board[class_id] = kind.from_json(text)
        except ContractError as error:
            bad.append(str(error))
    return board


def _services(text: str | None, cluster: str, bad: list[str]) -> frozenset[str] | None:
    if text is None:
        return None
    try:
        heartbeat = json_format.Parse(text, Heartbeat())
    except json_format.ParseError as error:
        bad.append(f"placement[{cluster}]: {error}")
        return None
    return frozenset(s.service for s in heartbeat.services if s.connected_envoys > 0)


async def in_force(redis: Redis, clusters: tuple[str, ...]) -> InForce | None:
    """None when no cluster has a ruleset. A ruleset that cannot be read counts as absent."""
    rulesets = {}
    for cluster in clusters:
        text = await redis.get(names.REDIS_KEY_IN_FORCE.format(cluster=cluster))
        if text is not None:
            try:
                rulesets[cluster] = json_format.Parse(text, Ruleset(), ignore_unknown_fields=True)
            except json_format.ParseError:
                continue
    if not rulesets:
        return None
    newest = max(rulesets.values(), key=lambda r: r.version)
    rules: dict = {}
    for ruleset in rulesets.values():
        rules |= of_ruleset(ruleset)
    versions = {cluster: ruleset.version for cluster, ruleset in rulesets.items()}
    return InForce(rules, newest.origin, newest.policy, versions, newest.id, rulesets)


async def policy(redis: Redis) -> str | None:
    return await redis.get(names.REDIS_KEY_POLICY)


async def restore_policy(redis: Redis, policy: str) -> None:
    """Writes the policy back after Redis has lost it; one that an operator sets meanwhile wins."""
    await redis.set(names.REDIS_KEY_POLICY, policy, nx=True)

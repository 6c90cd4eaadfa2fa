"""Redis client for boards, placement, rules in force and policy.

Only this file and lease.py access Redis.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from google.protobuf import json_format
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import ContractError, names, redis_client, traffic_class
from spillway_contracts.hot_state import (
    DemandEntry,
    LoadBoardEntry,
    NetworkEntry,
    RouteEntry,
    UnknownEntry,
)

from spillway_optimizer.callers.averages import Outcomes, Route
from spillway_optimizer.inputs.in_flight import Reported, reported
from spillway_optimizer.inputs.in_force import InForce, in_force_of
from spillway_optimizer.inputs.outcomes import gathered
from spillway_optimizer.inputs.telemetry import Pulse, Telemetry, rates

_TIMEOUT_S = 2.0
_SILENCE_S = 30.0  # after which a connection that listens is tested
_E = TypeVar("_E", LoadBoardEntry, DemandEntry)


def connect(url: str, options: Mapping[str, Any] | None = None) -> Redis:
    """Connects to Redis. `options`: connection options besides the URL."""
    return redis_client.connect(
        url,
        **(options or {}),
        decode_responses=True,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        health_check_interval=5,
    )


class _Replies(NamedTuple):
    """Redis's replies about one cluster, in the order of the requests. Each may be an error."""

    load: dict[str, str]
    demand: dict[str, str]
    heartbeat: str | None
    unknown: dict[str, str]


class SeenByCallers(NamedTuple):
    """Outcomes of calls, and calls in flight as Envoys report them.

    `at` is the Unix second of the newest outcome (None: none).
    """

    outcomes: Outcomes
    at: float | None
    malformed: tuple[str, ...]
    in_flight: Reported


class _Boards(NamedTuple):
    """The boards of one cluster, by class, and what is unknown there, by service."""

    load: dict[str, LoadBoardEntry]
    demand: dict[str, DemandEntry]
    unknown: dict[str, UnknownEntry]


async def boards(redis: Redis, clusters: tuple[str, ...]) -> Telemetry:
    """Reads the part of Telemetry that is in Redis, in one round trip.

    Entries that cannot be read are listed in `malformed`. The load of the service or cluster that
    such an entry describes is unknown.
    """
    pairs, replies = await _request_boards(redis, clusters)
    bad: list[str] = []
    parsed = {c: _parse_boards(reply, bad) for c, reply in replies.items()}
    network = _network(pairs, bad)
    heartbeats = {c: _heartbeat(reply.heartbeat, c, bad) for c, reply in replies.items()}
    beats = {c: beat for c, beat in heartbeats.items() if beat is not None}
    envoys = {c: _envoys(beat) for c, beat in beats.items()}
    return Telemetry(
        load={c: board.load for c, board in parsed.items()},
        demand={c: board.demand for c, board in parsed.items()},
        network=network,
        placement={c: frozenset(envoys[c]) if c in envoys else None for c in clusters},
        hold_s={c: float(beat.hold_seconds) for c, beat in beats.items() if beat.HasField("hold_seconds")},
        serving={c: beat.ruleset_version for c, beat in beats.items() if beat.ruleset_version},
        unknown={c: board.unknown for c, board in parsed.items() if board.unknown},
        malformed=tuple(bad),
        pods={(c, service): count for c, beat in beats.items() for service, count in _pods(beat).items()},
    )


async def _request_boards(
    redis: Redis, clusters: tuple[str, ...]
) -> tuple[dict[str, str], dict[str, _Replies]]:
    """Returns the fields of the network board, and the other replies by cluster."""
    async with redis.pipeline(transaction=False) as pipeline:
        pipeline.hgetall(names.REDIS_KEY_NETWORK)
        for cluster in clusters:
            pipeline.hgetall(names.REDIS_KEY_LOAD.format(cluster=cluster))
            pipeline.hgetall(names.REDIS_KEY_DEMAND.format(cluster=cluster))
            pipeline.get(names.REDIS_KEY_PLACEMENT.format(cluster=cluster))
            pipeline.hgetall(names.REDIS_KEY_UNKNOWN.format(cluster=cluster))
        pairs, *replies = await pipeline.execute(raise_on_error=False)
    columns = (replies[i::4] for i in range(4))
    return pairs, {c: _Replies(*row) for c, *row in zip(clusters, *columns, strict=True)}


async def outcomes(redis: Redis, clusters: tuple[str, ...]) -> SeenByCallers:
    """Reads what callers saw over the last seconds, in one round trip.

    Calls in flight that Envoys report are part of the placements, which expire with the heartbeats.
    What cannot be read is left out, and named in `malformed`. `boards` names wrong placements.
    """
    async with redis.pipeline(transaction=False) as pipeline:
        for cluster in clusters:
            pipeline.hgetall(names.REDIS_KEY_ROUTE.format(cluster=cluster))
        for cluster in clusters:
            pipeline.get(names.REDIS_KEY_PLACEMENT.format(cluster=cluster))
        replies = await pipeline.execute(raise_on_error=False)
    texts = dict(zip(clusters, replies[len(clusters) :], strict=True))
    beats = {c: beat for c, text in texts.items() if (beat := _heartbeat(text, c, [])) is not None}
    entries: dict[tuple[Route, str], RouteEntry] = {}
    bad: list[str] = []
    for cluster, reply in zip(clusters, replies[: len(clusters)], strict=True):
        if isinstance(reply, ResponseError):
            bad.append(f"{names.REDIS_KEY_ROUTE.format(cluster=cluster)}: {reply}")
            continue
        if isinstance(reply, Exception):
            raise reply
        for field, text in reply.items():
            try:
                class_id, source_service, destination = RouteEntry.route(field)
                traffic_class.parse(class_id)
                entries[(cluster, source_service, class_id), destination] = RouteEntry.from_json(text)
            except ContractError as error:
                bad.append(str(error))
    return SeenByCallers(*gathered(entries), tuple(bad), reported(beats))


def _parse_boards(replies: _Replies, bad: list[str]) -> _Boards:
    """Parses the boards of one cluster. Services with unreadable entries are unknown there."""
    lost: dict[str, str] = {}
    load = _board(replies.load, LoadBoardEntry, bad, lost)
    demand = _board(replies.demand, DemandEntry, bad, lost)
    unreadable = {service: UnknownEntry(0.0, why) for service, why in lost.items()}
    return _Boards(load, demand, _unknowns(replies.unknown) | unreadable)


async def pulse(redis: Redis, clusters: tuple[str, ...]) -> Pulse:
    """Reads the values that may make a solve urgent, in one round trip.

    Entries that cannot be read are ignored here. `boards` reports them.
    """
    async with redis.pipeline(transaction=False) as pipeline:
        for cluster in clusters:
            pipeline.hgetall(names.REDIS_KEY_DEMAND.format(cluster=cluster))
            pipeline.get(names.REDIS_KEY_PLACEMENT.format(cluster=cluster))
        replies = await pipeline.execute(raise_on_error=False)
    demand = {
        c: _board(hashed, DemandEntry, [], {}) for c, hashed in zip(clusters, replies[0::2], strict=True)
    }
    return Pulse(
        rates(demand), {c: _services(text, c, []) for c, text in zip(clusters, replies[1::2], strict=True)}
    )


async def changes(redis: Redis) -> AsyncIterator[str]:
    """Yields the name of a cluster when streams announce that its demand has changed at once.

    Its demand board has been written by then. Raises one of Redis's errors, also when the user may
    not listen.
    """
    async with redis.pubsub(ignore_subscribe_messages=True) as listening:
        await listening.subscribe(names.REDIS_CHANNEL_DEMAND)
        while True:
            message = await listening.get_message(timeout=_SILENCE_S)
            if message is not None:
                yield message["data"]


def _wrong_type(reply: Any) -> str:
    """Returns why a reply cannot be read: its key holds another type. Empty if it can be read.

    Raises every other error of Redis.
    """
    if not isinstance(reply, Exception):
        return ""
    if isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE"):
        return str(reply)
    raise reply


def _unknowns(hashed: dict[str, str]) -> dict[str, UnknownEntry]:
    """Returns what the boards do not know now, by service or names.VALUE_WHOLE_CLUSTER.

    An entry that cannot be read counts as present, because its writer reported something as
    unknown.
    """
    if why := _wrong_type(hashed):
        return {names.VALUE_WHOLE_CLUSTER: UnknownEntry(0.0, why)}
    return {field: _unknown(text) for field, text in hashed.items()}


def _unknown(text: str) -> UnknownEntry:
    try:
        return UnknownEntry.from_json(text)
    except ContractError as error:
        return UnknownEntry(0.0, str(error))


def _network(pairs: dict[str, str], bad: list[str]) -> dict[tuple[str, str], NetworkEntry]:
    network: dict[tuple[str, str], NetworkEntry] = {}
    if why := _wrong_type(pairs):
        bad.append(f"network: {why}")
        return network
    for pair, text in pairs.items():
        source, arrow, destination = pair.partition(">")
        try:
            if not arrow:
                raise ContractError(f"network[{pair!r}]: expected 'from>to'")
            network[source, destination] = NetworkEntry.from_json(text)
        except ContractError as error:
            bad.append(str(error))
    return network


def _board(hashed: dict[str, str], kind: type[_E], bad: list[str], lost: dict[str, str]) -> dict[str, _E]:
    """Parses one board. Adds services with unreadable entries to `lost`, with the reason.

    These services are unknown, not without load.
    """
    board: dict[str, _E] = {}
    if why := _wrong_type(hashed):
        bad.append(f"{kind.__name__}: {why}")
        lost[names.VALUE_WHOLE_CLUSTER] = why
        return board
    for class_id, text in hashed.items():
        service = ""
        try:
            service = traffic_class.parse(class_id).service
            board[class_id] = kind.from_json(text)
        except ContractError as error:
            bad.append(str(error))
            if service:
                lost[service] = str(error)
    return board


def _services(text: str | None, cluster: str, bad: list[str]) -> frozenset[str] | None:
    connected = _connected(text, cluster, bad)
    return None if connected is None else frozenset(connected)


def _connected(text: str | None, cluster: str, bad: list[str]) -> dict[str, int] | None:
    """Returns what `_envoys` returns for the heartbeat. None if there is no readable one."""
    heartbeat = _heartbeat(text, cluster, bad)
    return None if heartbeat is None else _envoys(heartbeat)


def _envoys(heartbeat: Heartbeat) -> dict[str, int]:
    """Returns the number of connected Envoys of each service that has any."""
    return {s.service: s.connected_envoys for s in heartbeat.services if s.connected_envoys > 0}


def _pods(heartbeat: Heartbeat) -> dict[str, int]:
    """Returns the pods of each service that can serve.

    They are its connected Envoys, but no more than its ready pods where these are known. Where no
    pod is ready, one is left: its relays already send calls elsewhere, and a number of 0 would be
    unknown.
    """
    ready = {s.service: max(s.ready_pods, 1) for s in heartbeat.services if s.HasField("ready_pods")}
    return {name: min(count, ready.get(name, count)) for name, count in _envoys(heartbeat).items()}


def _heartbeat(text: str | None, cluster: str, bad: list[str]) -> Heartbeat | None:
    if _wrong_type(text) or text is None:
        return None
    try:
        return json_format.Parse(text, Heartbeat(), ignore_unknown_fields=True)
    except json_format.ParseError as error:
        bad.append(f"placement[{cluster}]: {error}")
        return None


async def in_force(redis: Redis, clusters: tuple[str, ...]) -> InForce | None:
    """Reads the rulesets in force. Returns None if no cluster has one.

    A ruleset that cannot be read counts as absent.
    """
    rulesets = {}
    texts = await redis.mget([names.REDIS_KEY_IN_FORCE.format(cluster=cluster) for cluster in clusters])
    for cluster, text in zip(clusters, texts, strict=True):
        if text is not None:
            try:
                rulesets[cluster] = json_format.Parse(text, Ruleset(), ignore_unknown_fields=True)
            except json_format.ParseError:
                continue
    return in_force_of(rulesets)


async def policy(redis: Redis) -> str | None:
    """Reads the policy that the operator has set. None: none is set."""
    # redis-py's types do not say that `connect` decodes the replies.
    return cast("str | None", await redis.get(names.REDIS_KEY_POLICY))


async def restore_policy(redis: Redis, policy: str) -> None:
    """Writes the policy back after Redis has lost it. One that an operator sets meanwhile wins."""
    await redis.set(names.REDIS_KEY_POLICY, policy, nx=True)

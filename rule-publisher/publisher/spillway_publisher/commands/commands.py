"""Runs the commands that connect: status, history, rollback, reset-fence, act and acts.

Each command asks a question or sends a proposal, and prints the answer.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Collection
from datetime import UTC, datetime
from urllib.parse import urlsplit

from nats.js.errors import NotFoundError
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import names
from spillway_contracts.acts import Act, KeptAct
from spillway_runtime.status import describe

from spillway_publisher.bucket import jetstream
from spillway_publisher.bucket.acts import ActsBucket
from spillway_publisher.bucket.bucket import LARGEST_VERSION
from spillway_publisher.bucket.checkpoints import Reader
from spillway_publisher.bucket.keys import Keys
from spillway_publisher.bucket.values import Values
from spillway_publisher.clients import rows
from spillway_publisher.clients.clickhouse import TROUBLE as CLICKHOUSE_TROUBLE
from spillway_publisher.clients.clickhouse import ClickHouse
from spillway_publisher.commands import operator
from spillway_publisher.process.config import OperatorSettings
from spillway_publisher.process.telemetry import Telemetry

WAIT_S = 15.0


def _inbox(settings: OperatorSettings) -> str:
    """Returns the prefix of the inbox for answers.

    NATS lets a user read its own inbox only. In the publisher's pod, commands run as its user.
    """
    user = urlsplit(settings.nats_url.get_secret_value().split(",")[0]).username
    return names.NATS_INBOX_PUBLISHER if user == "publisher" else names.NATS_INBOX_OPERATOR


@contextlib.asynccontextmanager
async def _jetstream(settings: OperatorSettings):
    try:
        client = await jetstream.connect(settings, _inbox(settings), Telemetry())
    except jetstream.TROUBLE as error:
        raise operator.OperatorError(f"SPILLWAY_NATS_URL: cannot connect: {describe(error)}") from error
    try:
        yield client.jetstream(timeout=5)
    except jetstream.TROUBLE as error:
        raise operator.OperatorError(
            f"NATS: {describe(error)}; has a publisher ever run against this server?"
        ) from error
    finally:
        await client.close()


class _Signed:
    """The values of the bucket that a key of SPILLWAY_RULESET_KEYS signed. Others are reported."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._telemetry = Telemetry()
        keys = Keys(None, settings.ruleset_keys)
        self._values = Values(keys, self._telemetry)
        self._checkpoints = Reader(keys, self._telemetry)

    async def latest(self, js) -> dict[str, Ruleset]:
        entries = {key: await self._values.latest(js, key) for key in await self._values.names(js)}
        return {cluster: entry.ruleset for cluster, entry in entries.items() if entry.ruleset.version}

    async def history(self, js) -> dict[str, list[Ruleset]]:
        found = {key: await self._values.history(js, key) for key in await self._values.names(js)}
        return {key: [stored.ruleset for stored in values] for key, values in found.items() if values}

    async def checkpoints(self, js, below: int, count: int) -> list[Ruleset]:
        """Returns the newest checkpoints below this version, newest first.

        Returns none when no publisher has created the stream yet.
        """
        try:
            return await self._checkpoints.before(js, below, count)
        except NotFoundError:
            return []

    def report_refused(self) -> None:
        """Prints to stderr how many rulesets were left out, by reason."""
        counters = self._telemetry.counters
        refused = {k.removeprefix("malformed."): n for k, n in counters.items() if k.startswith("malformed.")}
        if refused:
            reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(refused.items()))
            print(
                f"left out: rulesets that SPILLWAY_RULESET_KEYS did not sign ({reasons})",
                file=sys.stderr,
            )


async def status(settings: OperatorSettings, as_json: bool) -> int:
    """Prints what is in force in every cluster."""
    signed = _Signed(settings)
    async with _jetstream(settings) as js:
        in_force = await signed.latest(js)
    signed.report_refused()
    acknowledged = await _acknowledged(settings, {r.version for r in in_force.values()})
    table = operator.status_rows(in_force, acknowledged, time.time_ns())
    print(json.dumps(table) if as_json else operator.format_table(table))
    return 0


async def _acknowledged(
    settings: OperatorSettings, versions: set[int]
) -> dict[tuple[str, int], tuple[int, int]] | None:
    if settings.clickhouse_url is None or not versions:
        return None
    clickhouse = ClickHouse(settings.clickhouse_address)
    try:
        found = await clickhouse.select(rows.sql("acknowledged"), {"versions": tuple(sorted(versions))})
    except CLICKHOUSE_TROUBLE as error:
        print(f"ClickHouse is away, acks are unknown: {describe(error)}", file=sys.stderr)
        return None
    finally:
        clickhouse.close()
    return {(cluster, version): (acks, nacks) for cluster, version, acks, nacks in found}


async def history(settings: OperatorSettings, limit: int, as_json: bool) -> int:
    """Prints the newest checkpoints, newest first."""
    signed = _Signed(settings)
    async with _jetstream(settings) as js:
        table = operator.checkpoint_rows(await signed.checkpoints(js, LARGEST_VERSION, limit))
    signed.report_refused()
    print(json.dumps(table) if as_json else operator.format_table(table))
    return 0


async def _earlier(
    js, signed: _Signed, history: dict[str, list[Ruleset]], to: int | None, before: str | None
):
    """Returns the ruleset to go back to. Raises OperatorError."""
    newest = max((r.version for found in history.values() for r in found), default=0)
    if before is None:
        try:
            return operator.whole(history, operator.choose_version(history, to))
        except operator.OperatorError as error:
            # The version is older than the bucket's history. Use the checkpoint from which on its
            # rules were in force. When the bucket has no valid version (it was emptied, or its key
            # is no longer trusted), every checkpoint is earlier.
            behind = newest or LARGEST_VERSION
            limit = behind if to is None else to + 1
            found = await signed.checkpoints(js, limit, 2) if limit <= behind else []
            found = found if to is None else found[:1]
            if not found:
                raise error from None
            asked = "rollback" if to is None else f"--to {to}"
    else:
        limit = operator.moment(before, datetime.now(UTC))
        found, asked = await signed.checkpoints(js, limit, 1), f"--before {before}"
    return operator.choose_checkpoint(found, operator.whole(history, newest), asked)


async def rollback(
    settings: OperatorSettings, to: int | None, before: str | None, reason: str, lifetime_s: float
) -> int:
    """Proposes an earlier version's rules and waits until the publisher has published them."""
    signed = _Signed(settings)
    async with _jetstream(settings) as js:
        history = await signed.history(js)
        old = await _earlier(js, signed, history, to, before)
        signed.report_refused()
        newest = max((ruleset.version for found in history.values() for ruleset in found), default=0)
        proposal = operator.rollback(old, newest, reason, lifetime_s, time.time_ns())
        given = await _in_force(js, signed, proposal, history)
    print(f"version {given} is in force: the rules of version {old.version}")
    return 0


async def reset_fence(settings: OperatorSettings, origin: str, reason: str) -> int:
    """Makes publishers forget the fencing tokens of an origin, and waits until they have."""
    signed = _Signed(settings)
    async with _jetstream(settings) as js:
        proposal = operator.reset_fences([origin], reason, time.time_ns())
        given = await _in_force(js, signed, proposal, ())
    print(f"version {given} is in force: earlier fencing tokens of {origin} no longer count")
    return 0


async def _in_force(js, signed: _Signed, proposal: Ruleset, clusters: Collection[str]) -> int:
    """Sends the proposal, waits until it is in force, and returns its version.

    It must be in force in all of these clusters, and in at least one. Raises OperatorError when it
    is not within WAIT_S.
    """
    subject = names.NATS_SUBJECT_PROPOSALS.format(origin="operator")
    await js.publish(subject, proposal.SerializeToString(), headers={"Nats-Msg-Id": proposal.id})
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        published = await signed.latest(js)
        given = {c: r.version for c, r in published.items() if r.id == proposal.id}
        if given and all(cluster in given for cluster in clusters):
            return min(given.values())
        await asyncio.sleep(0.2)
    raise operator.OperatorError(
        f"proposal {proposal.id} was sent but is not in force everywhere after {WAIT_S:g} s: does the "
        f"publisher run? If it refused, table rulesets and its log say why"
    )


async def act(settings: OperatorSettings, wanted: Act) -> int:
    """Sends an act, waits until the publisher has accepted it, and prints how to end it."""
    bucket = ActsBucket(Keys(None, settings.ruleset_keys), Telemetry())
    async with _jetstream(settings) as js:
        subject = names.NATS_SUBJECT_ACTS.format(via=wanted.via)
        await js.publish(subject, wanted.to_json().encode(), headers={"Nats-Msg-Id": wanted.id})
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            kept = (await bucket.read(js)).get(wanted.ends or wanted.id)
            if kept is not None and wanted in (kept.act, kept.ended_by):
                print(operator.accepted(wanted, kept))
                return 0
            await asyncio.sleep(0.2)
    raise operator.OperatorError(
        f"act {wanted.id} was sent but is not accepted after {WAIT_S:g} s: does the publisher run? If it refused, "
        "table operator_acts and its log say why"
    )


async def acts(settings: OperatorSettings, every: bool, as_json: bool) -> int:
    """Prints the acts in force, or every act that the bucket has not forgotten."""
    telemetry = Telemetry()
    bucket = ActsBucket(Keys(None, settings.ruleset_keys), telemetry)
    async with _jetstream(settings) as js:
        found: Collection[KeptAct] = (await bucket.read(js)).values()
    if refused := sum(n for name, n in telemetry.counters.items() if name.startswith("malformed.")):
        print(f"left out: {refused} acts that SPILLWAY_RULESET_KEYS did not sign", file=sys.stderr)
    table = operator.act_rows(found, datetime.now(UTC), every)
    print(json.dumps(table) if as_json else operator.format_table(table, "no act is in force"))
    return 0

"""A change of weights is tried by some Envoys, and then kept or rolled back, with real servers."""

import asyncio
import time
from datetime import UTC, datetime

import pytest
from spillway.v1.acknowledgement_pb2 import OUTCOME_ACK, OUTCOME_NACK, Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.rules.answers import ROUTES, fnv1a

pytestmark = pytest.mark.component

# With a share of half, the one is elected and the other is not (test_trials.py).
ELECTED, OTHER = "north/web/2", "north/web/0"
BEFORE = {"north": {"north": 8000, "south": 2000}}
AFTER = {"north": {"north": 6000, "south": 4000}}
CLASS = "shop GET /items/{id}"
GUARDRAILS = "canary: {clusters: [north], share: 5000, seconds: 10, failed_share: 0.05, cost_rise: 0.4}"
STATES = (
    "SELECT state, version, reason FROM transitions FINAL WHERE ruleset_id = %(id)s ORDER BY at, "
    "indexOf(['proposed', 'checked', 'canary', 'acknowledged', 'kept', 'rolled_back'], state)"
)
# Envoys may have acknowledged the trial before.
ROLLED_BACK = (
    "SELECT state, version, reason FROM transitions FINAL WHERE ruleset_id = %(id)s AND state = 'rolled_back'"
)


class Relays:
    """North's relay, with two Envoys that have every version in force, and those of the others."""

    def __init__(self, world) -> None:
        self._world = world
        self._last = datetime.now(UTC).timestamp()
        self.refusing: set[str] = set()  # Envoys that take no version any more

    async def report(self) -> None:
        """Sends heartbeats and acknowledgements of what the bucket holds."""
        js = await self._world.jetstream()
        for cluster in ("north", "south", "island"):
            value = await self._world.value(cluster)
            envoys = (ELECTED, OTHER) if cluster == "north" else ()
            beat = Heartbeat(cluster=cluster, relay="relay-0", ttl_seconds=10, ruleset_version=value.version)
            beat.at.GetCurrentTime()
            if value.HasField("canary") and cluster in value.canary.clusters:
                beat.canary_version = value.version
            beat.services.add(
                service="web", connected_envoys=len(envoys), envoys=[fnv1a(envoy) for envoy in envoys]
            )
            await js.publish(f"spillway.heartbeats.{cluster}", beat.SerializeToString())
            for envoy in envoys if value.version else ():
                if envoy not in self.refusing:
                    await self.answer(envoy, value.version, OUTCOME_ACK)

    async def answer(self, envoy: str, version: int, outcome: int, detail: str = "") -> None:
        answer = Acknowledgement(
            cluster="north", service="web", envoy=envoy, ruleset_version=version, type_url=ROUTES, outcome=outcome,
            detail=detail,
        )  # fmt: skip
        answer.at.GetCurrentTime()
        await (await self._world.jetstream()).publish("spillway.acks.north", answer.SerializeToString())


@pytest.fixture
async def relays(world):
    """Relays that report every second, beside the test."""
    reporting = Relays(world)

    async def report() -> None:
        while True:
            try:
                await reporting.report()
            except Exception:  # a stream that the publisher has not made yet
                pass
            await asyncio.sleep(1)

    task = asyncio.create_task(report())
    yield reporting
    task.cancel()


@pytest.fixture
def guarded(world):
    (world.folder / "guardrails.yaml").write_text(GUARDRAILS)
    world.environment["SPILLWAY_GUARDRAILS"] = str(world.folder / "guardrails.yaml")
    return world


async def begun(world, make):
    """Publishes BEFORE, and begins a trial of AFTER. Returns the proposal and its version."""
    first, change = make(BEFORE), make(AFTER)
    await world.propose(first)
    await world.published(first)
    await world.propose(change)
    version = await world.published(change)
    value = await world.value("north")
    assert value.HasField("canary") and weights(value) == BEFORE["north"]
    assert weights(value.canary.ruleset) == AFTER["north"]
    return change, version


def weights(ruleset) -> dict[str, int]:
    return {d.cluster: d.weight for d in ruleset.rules[0].destinations}


async def ended(world) -> None:
    async def without() -> bool:
        values = [await world.value(cluster) for cluster in ("north", "south", "island")]
        return not any(value.HasField("canary") for value in values)

    await eventually_async(without, "the end of the trial")


async def test_a_trial_without_harm_is_kept(guarded, relays, make):
    """After its time all clusters have the change, by its proposer. Meanwhile others wait.

    Its states are rows, and the rows of its rules are those that it tried.
    """
    guarded.publisher()
    began = time.monotonic()
    change, version = await begun(guarded, make)
    waits = make(BEFORE)
    await guarded.propose(waits)
    refusal = "SELECT reason FROM rulesets WHERE ruleset_id = %(id)s AND outcome = 'refused'"
    ((reason,),) = await guarded.rows(refusal, 1, id=waits.id)
    assert reason.startswith(f"canary: version {version} is on trial until ")
    await ended(guarded)
    assert 10 <= time.monotonic() - began < 30
    value = await guarded.value("north")
    assert weights(value) == AFTER["north"] and value.origin == change.origin and value.concludes == version
    rows = await guarded.rows(STATES, 5, id=change.id)
    assert [(state, given) for state, given, _ in rows] == [
        ("proposed", 0), ("checked", 0), ("canary", version), ("acknowledged", version), ("kept", value.version),
    ]  # fmt: skip
    assert "on trial by 50.00% of the Envoys of north" in rows[2][2]
    assert rows[4][2] == "the canary is kept: 1 elected Envoys have it in force; it routed no call"
    tried = "SELECT DISTINCT destination_cluster, weight FROM rules WHERE version = %(v)s ORDER BY weight"
    assert await guarded.rows(tried, 2, v=version) == [("south", 4000), ("north", 6000)]
    checkpoints = (await (await guarded.jetstream()).stream_info("SPILLWAY_CHECKPOINTS")).state.messages
    assert checkpoints == 2  # before and after; none of the trial


async def test_a_refusal_ends_a_trial_although_the_publisher_was_dead_meanwhile(guarded, relays, make):
    """An Envoy refuses while no publisher runs. The next one finds both in NATS, and rolls back.

    The weights are those that all others kept, by the operator, so the same is not tried at once.
    """
    process = guarded.publisher()
    change, version = await begun(guarded, make)
    process.kill()
    relays.refusing.add(ELECTED)
    await relays.answer(ELECTED, version, OUTCOME_NACK, "no such cluster")
    guarded.publisher()
    await ended(guarded)
    value = await guarded.value("north")
    assert weights(value) == BEFORE["north"] and value.origin == ORIGIN_OPERATOR
    rows = await guarded.rows(ROLLED_BACK, 1, id=change.id)
    assert rows[-1] == (
        "rolled_back", value.version, f"the canary is rolled back: {ELECTED} refused it: no such cluster",
    )  # fmt: skip
    again = make(AFTER)
    await guarded.propose(again)
    ((reason,),) = await guarded.rows("SELECT reason FROM rulesets WHERE ruleset_id = %(id)s", 1, id=again.id)
    assert reason.startswith("a trial was rolled back")


async def test_failing_calls_end_a_trial(guarded, relays, make):
    """Half of the calls that the trial routes fail, and none of the others in the same cluster."""
    guarded.publisher()
    change, version = await begun(guarded, make)
    now, names = (
        datetime.now(UTC),
        "started_at, trace_id, span_id, source_cluster, source_service, class, failed, adjusted_count",
    )
    edges = [
        (
            now,
            f"{change.id}-{i}",
            f"{i:016x}",
            "north",
            "web",
            CLASS,
            tried and i % 4 == 0,
            1.0,
            version if tried else 5,
        )
        for i in range(400)
        for tried in [i % 2 == 0]
    ]
    guarded.clickhouse.execute(f"INSERT INTO edges ({names}, ruleset_version) VALUES", edges)
    began = time.monotonic()
    await ended(guarded)
    assert time.monotonic() - began < 9  # before its time
    assert weights(await guarded.value("north")) == BEFORE["north"]
    rows = await guarded.rows(ROLLED_BACK, 1, id=change.id)
    assert "50.0% of 200 calls failed, and 0.0% of 200 beside; failed_share allows 5.0% more" in rows[-1][2]


async def test_calls_that_cost_more_end_a_trial(guarded, relays, make):
    """Calls are as slow as before, and their egress is worth more than half of that time.

    Responses leave south at 0.02 USD per GB, and a ms of a million requests is worth 0.1 USD.
    """
    guarded.publisher()
    guarded.clickhouse.execute("TRUNCATE TABLE edges")
    change, version = await begun(guarded, make)
    now = datetime.now(UTC)
    # 250 kB at 0.2 ms per kB are 50 ms
    calls = [
        (datetime.fromtimestamp(version / 1000 - 3, UTC), "north", 0, 5),
        (now, "south", 250_000, version),
    ]
    edges = [
        (at, f"{change.id}-{at}-{i}", f"{i:016x}", "north", to, "web", CLASS, 100_000, size, 1.0, by)
        for i in range(100)
        for at, to, size, by in calls
    ]
    names = (
        "started_at, trace_id, span_id, source_cluster, destination_cluster, source_service, class, duration_us, "
        "response_bytes, adjusted_count, ruleset_version"
    )
    guarded.clickhouse.execute(f"INSERT INTO edges ({names}) VALUES", edges)
    await ended(guarded)
    assert weights(await guarded.value("north")) == BEFORE["north"]
    rows = await guarded.rows(ROLLED_BACK, 1, id=change.id)
    assert "a call costs 150.0 ms, and 100.0 ms before; cost_rise allows 40.0% more" in rows[-1][2]


async def test_an_operator_ends_a_trial_at_once(guarded, relays, make):
    """A ruleset of the operator, and the kill switch, are in force without waiting for its end."""
    guarded.publisher()
    change, _ = await begun(guarded, make)
    own = make({"north": {"north": 10_000}}, origin=ORIGIN_OPERATOR)
    await guarded.propose(own, origin="operator")
    version = await guarded.published(own)
    assert not (await guarded.value("north")).HasField("canary")
    rows = await guarded.rows(ROLLED_BACK, 1, id=change.id)
    assert rows[-1][:2] == ("rolled_back", version)

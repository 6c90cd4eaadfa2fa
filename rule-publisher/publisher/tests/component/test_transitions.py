"""The states of a proposal on its way into force are rows, in order and with their reasons."""

import pytest
from proposed import SPREAD
from spillway.v1.acknowledgement_pb2 import OUTCOME_ACK, Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_lab.testing.waiting import eventually_async
from spillway_publisher.rules.answers import ROUTES, fnv1a

pytestmark = pytest.mark.component

STATES = (
    "SELECT state, version, origin, reason FROM transitions FINAL WHERE ruleset_id = %(id)s ORDER BY at, "
    "indexOf(['proposed', 'checked', 'refused', 'published', 'acknowledged'], state)"
)
ENVOY = "north/web/0"


async def hear(world, version: int, envoys=(ENVOY,)) -> None:
    """Sends a heartbeat of north's relay that names the Envoys."""
    beat = Heartbeat(cluster="north", relay="relay-0", ttl_seconds=10, ruleset_version=version)
    beat.at.GetCurrentTime()
    beat.services.add(service="web", connected_envoys=len(envoys), envoys=[fnv1a(envoy) for envoy in envoys])
    await (await world.jetstream()).publish("spillway.heartbeats.north", beat.SerializeToString())


async def acknowledge(world, version: int, envoy: str = ENVOY) -> None:
    answer = Acknowledgement(
        cluster="north",
        service="web",
        envoy=envoy,
        ruleset_version=version,
        type_url=ROUTES,
        outcome=OUTCOME_ACK,
    )
    answer.at.GetCurrentTime()
    await (await world.jetstream()).publish("spillway.acks.north", answer.SerializeToString())


async def test_a_proposal_is_followed_from_its_arrival_to_the_last_envoy(world, make):
    """Proposed, checked and published at once, and acknowledged by the last of two Envoys.

    A second publisher takes part, and no state is there twice. A publisher that starts later finds
    the same state again.
    """
    world.publisher()
    world.publisher()
    proposal = make(SPREAD)
    await world.propose(proposal)
    version = await world.published(proposal)
    expected = [
        ("proposed", 0, "optimizer", ""),
        ("checked", 0, "optimizer", ""),
        ("published", version, "optimizer", ""),
    ]
    assert await world.rows(STATES, 3, id=proposal.id) == expected
    await acknowledge(world, version)

    async def both_named() -> bool:
        await hear(world, version, (ENVOY, "north/web/1"))
        return bool(world.hot("spillway:placement:north"))

    await eventually_async(both_named, "north's placement")
    assert len(await world.rows(STATES, 3, id=proposal.id)) == 3
    await acknowledge(world, version, "north/web/1")

    async def everywhere() -> bool:
        await hear(world, version, (ENVOY, "north/web/1"))
        return len(world.clickhouse.execute(STATES, {"id": proposal.id})) == 4

    await eventually_async(everywhere, "the state acknowledged")
    reason = "by all 2 connected Envoys; none is known in island, south"
    expected.append(("acknowledged", version, "optimizer", reason))
    assert await world.rows(STATES, 4, id=proposal.id) == expected
    world.publisher()
    later = make(SPREAD)
    await world.propose(later)
    await world.published(later)
    assert await world.rows(STATES, 4, id=proposal.id) == expected


async def test_a_refused_proposal_ends_there(world, make):
    """It has two states, and the second one says why. Authority is checked before all else."""
    world.publisher()
    wrong, foreign = make({"north": {"north": 1}}), make(SPREAD)
    await world.propose(wrong)
    await world.propose(foreign, origin="papa")
    proposed, refused = await world.rows(STATES, 2, id=wrong.id)
    assert (proposed[0], refused[:3]) == ("proposed", ("refused", 0, "optimizer"))
    assert "weights sum to 1" in refused[3]
    _, (state, _, _, reason) = await world.rows(STATES, 2, id=foreign.id)
    assert state == "refused" and "may propose in its own name only" in reason


async def test_states_that_clickhouse_missed_are_recorded_after_a_restart(world, make):
    """The publisher is killed while ClickHouse is away. The bucket still has the version."""
    nowhere = "clickhouse://u:p@127.0.0.1:1/spillway"
    process = world.publisher(SPILLWAY_CLICKHOUSE_URL=nowhere)
    proposal = make(SPREAD)
    await world.propose(proposal)
    version = await world.published(proposal)
    process.kill()
    world.publisher()
    why = "recovered from the rulesets bucket after a restart"
    rows = await world.rows(STATES, 3, id=proposal.id)
    assert [(state, given) for state, given, *_ in rows] == [
        ("proposed", 0),
        ("checked", 0),
        ("published", version),
    ]
    assert rows[-1] == ("published", version, "optimizer", why)

"""Servers and leaders of the optimizer that are killed.

The process stays, reports the problem, and continues.
"""

import pytest
from optimizer_process import LEASE
from spillway_contracts import names
from spillway_lab.testing.waiting import eventually
from spillway_optimizer.clients import hot
from spillway_optimizer.clients.lease import Lease

pytestmark = pytest.mark.component


def test_one_leader_proposes_and_a_standby_takes_over(world):
    """Two processes share one lease.

    The standby proposes nothing while the leader renews the lease. After kill -9 of the leader, the
    standby proposes.
    """
    with world.process("run", SPILLWAY_POLICY="spillway", **LEASE) as leader:
        eventually(world.proposals, "a proposal")
        with world.process("run", SPILLWAY_POLICY="local", **LEASE) as standby:
            eventually(lambda: "standing by" in standby.log.read_text(), "a standby")
            before = len(world.proposals())
            eventually(lambda: len(world.proposals()) > before, "a renewal beside the standby")
            assert {p.policy for p in world.proposals()} == {"spillway"}
            leader.popen.kill()
            leader.popen.wait()
            eventually(lambda: world.proposals()[-1].policy == "local", "the standby's proposal")


def test_the_service_outlives_redis(world):
    """Redis is killed and comes back empty.

    The process stays, reports the problem, and proposes again.
    """
    with world.process("run") as process:
        before = len(eventually(world.proposals, "a proposal"))
        world.redis_server.kill()
        eventually(lambda: "redis: away" in process.log.read_text(), "the complaint")
        world.redis_server.start()
        eventually(lambda: len(world.proposals()) > before, "a proposal after the restart")
        assert process.popen.poll() is None


def test_an_operators_policy_outlives_redis(world):
    """Redis loses the policy that an operator has set.

    The optimizer continues to follow it, and writes it back.
    """
    world.publishing = True
    with world.process("run", SPILLWAY_POLICY="local"):
        world.redis.set(names.REDIS_KEY_POLICY, "waterfall")
        eventually(lambda: any(r.policy == "waterfall" for r in world.proposals()), "the operator's policy")
        world.redis.delete(names.REDIS_KEY_POLICY)
        eventually(lambda: world.redis.get(names.REDIS_KEY_POLICY) == "waterfall", "the policy back in Redis")


def test_the_service_outlives_nats(world):
    """NATS is killed.

    Every solve meanwhile has a row that says so. Proposals continue after NATS has returned.
    """
    with world.process("run") as process:
        before = len(eventually(world.proposals, "a proposal"))
        world.nats_server.kill()
        world.command_policy("waterfall")
        eventually(lambda: any("nats is away" in row[2] for row in world.solves()), "a row that says so")
        world.nats_server.start()
        eventually(lambda: len(world.proposals()) > before, "a proposal after the restart")
        assert world.proposals()[-1].policy == "waterfall"
        assert process.popen.poll() is None


def test_the_service_outlives_clickhouse(world):
    """ClickHouse is killed.

    Decisions continue with the last model. Their rows wait and are written when ClickHouse returns.
    """
    with world.process("run") as process:
        before = len(eventually(world.proposals, "a proposal"))
        world.clickhouse.disconnect()
        world.clickhouse_server.kill()
        eventually(lambda: "clickhouse: away" in process.log.read_text(), "the complaint")
        eventually(lambda: len(world.proposals()) > before, "a renewal without ClickHouse")

        def renewals() -> int:
            return (process.health() or {}).get("counters", {}).get("renewed", 0)

        renewed = eventually(renewals, "a renewal counted", seen=process.tail)
        world.clickhouse_server.start()
        eventually(lambda: [row[0] for row in world.solves()].count("renewed") >= renewed, "rows that waited")


async def test_tokens_grow_from_leader_to_leader_whatever_redis_remembers(world):
    """Each lease has a larger token than the previous one, and only one of two processes holds it.

    That is true after a clock was ahead, after a lease expired or was given back, and after Redis
    lost all data.
    """
    redis = hot.connect(world.redis_server.url)
    fence = names.REDIS_KEY_LEASE_FENCE.format(role="test")
    first, second = (Lease(redis, "test", 10.0) for _ in range(2))
    assert await first.hold() and not await second.hold() and second.fencing_token == 0
    before = first.fencing_token
    assert await first.hold() and first.fencing_token == before
    await first.release()
    assert await second.hold() and second.fencing_token > before
    ahead = second.fencing_token + 10**9
    await second.release()
    await redis.set(fence, ahead)
    assert await first.hold() and first.fencing_token == ahead + 1
    await first.release()
    await redis.set(fence, 2**63)  # the publisher would refuse the tokens after it
    assert await first.hold() and before < first.fencing_token < ahead
    await redis.flushall()
    assert await second.hold() and second.fencing_token > before
    assert not await first.hold()
    await redis.aclose()

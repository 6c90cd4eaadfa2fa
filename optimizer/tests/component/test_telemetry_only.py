"""Relays without Envoys: shadow mode of a mesh that only sends telemetry.

Redis, NATS and ClickHouse are real.
"""

import re

import pytest
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component

ROWS = """
    SELECT application, notes, mean_latency_ms, now_mean_latency_ms, egress_usd_per_hour, now_egress_usd_per_hour,
           objective_usd_per_hour, now_objective_usd_per_hour
    FROM solves WHERE outcome IN ('proposed', 'renewed', 'unchanged')
"""


def test_telemetry_alone_makes_proposals_and_says_what_they_would_gain(world):
    """Heartbeats list no Envoy, and nothing is published.

    Proposals continue, and every row states the prices of the proposal and of local-first. West is
    near its capacity, so sending some requests away saves time and costs some egress.
    """
    for services in world.placed.values():
        services.clear()
    with world.process("run") as process:
        eventually(world.proposals, "a proposal", seen=lambda: (world.solves(), process.tail()))
        wanted = {"proposed", "renewed"}
        eventually(lambda: wanted <= {o for o, _, _ in world.solves()}, "rows", seen=world.solves)
    refused = [reason for outcome, _, reason in world.solves() if outcome == "refused"]
    # On a busy machine the boards may be late. No refusal has a missing placement as its reason.
    assert all(
        re.match("nothing is known now|demand: no board has requests", reason) for reason in refused
    ), refused
    note = "placement: no Envoy subscribes in 'west' for backend, frontend, gateway, which serve calls there"
    rows = world.clickhouse.execute(ROWS)
    for application, notes, latency, now_latency, egress, now_egress, objective, now_objective in rows:
        assert application == "gateway" and note in notes
        assert now_latency > latency + 5 and now_objective > objective and now_egress == 0 < egress

"""Relays without Envoys, against real Redis, NATS and ClickHouse: shadow mode of a mesh that only sends telemetry."""

import re
import time

import pytest
from spillway_lab import questions
from spillway_lab.commands.sql import FOLDER
from spillway_lab.testing.waiting import eventually

pytestmark = pytest.mark.component


def gains(world) -> list[dict]:
    question = questions.read(FOLDER / "gains.sql")
    sql = questions.bound(question, {"start": f"{time.time() - 600:.0f}", "end": f"{time.time() + 60:.0f}"})
    rows, columns = world.clickhouse.execute(sql, with_column_types=True)
    return [dict(zip([name for name, _ in columns], row, strict=True)) for row in rows]


def test_telemetry_alone_makes_proposals_and_says_what_they_would_gain(world):
    """Heartbeats list no Envoy and nothing is published. Proposals go on being made, every row prices them beside
    local-first, and the question of the cookbook has the difference."""
    for services in world.placed.values():
        services.clear()
    with world.process("run") as process:
        eventually(world.proposals, "a proposal", seen=lambda: (world.solves(), process.tail()))
        outcomes = ("proposed", "renewed")
        eventually(lambda: set(outcomes) <= {o for o, _, _ in world.solves()}, "rows", seen=world.solves)
    refused = [reason for outcome, _, reason in world.solves() if outcome == "refused"]
    # On a busy machine boards may be late; no refusal is for want of a place.
    assert all(
        re.match("nothing is known now|demand: no board has requests", reason) for reason in refused
    ), refused
    ((notes,),) = world.clickhouse.execute("SELECT notes FROM solves WHERE outcome = 'proposed' LIMIT 1")
    note = "placement: no Envoy subscribes in 'west' for backend, frontend, gateway, which serve calls there"
    assert note in notes
    (row,) = gains(world)
    assert (row["application"], row["policy"], row["rps"]) == ("gateway", "spillway", 550)
    assert row["now_egress_usd"] == 0 < row["proposed_egress_usd"]
    assert row["saved_ms"] > 5 and row["saved_usd"] > 0 and 0 < row["saved_percent"] < 100
    assert row["saved_ms"] == pytest.approx(row["now_ms"] - row["proposed_ms"], abs=0.002)

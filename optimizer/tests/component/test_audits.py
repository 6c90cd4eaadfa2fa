"""Audits of the optimizer as a process, with real Redis, NATS and ClickHouse."""

import math

import pytest
from optimizer_process import LEASE
from spillway_lab.testing.waiting import eventually

AUDIT_S = 150.0
pytestmark = pytest.mark.component

COLUMNS = (
    "application, policy, trigger, solution_usd_per_hour, bound_usd_per_hour, relative_gap, "
    "audited_usd_per_hour, audited_gap, audit_difference, reason"
)

# The solve of the first audit.
SOLVED = """
    SELECT solution_usd_per_hour, audit_difference FROM solves
    WHERE outcome != 'audited' AND at = (SELECT min(at) FROM solves WHERE outcome = 'audited')
"""


def test_a_solve_of_the_running_optimizer_is_audited(world):
    """An audit arrives as a row of the audited solve, beside the rows of solves.

    The bound is below both costs, and the difference is within the gap that the solve had stated.
    The metrics count it as an audit, and not as a solve.
    """
    world.publishing = True
    # At the lowest priority, a child of a busy machine needs long to start.
    settings = {"SPILLWAY_OPTIMIZER_AUDIT_S": "1", "SPILLWAY_OPTIMIZER_AUDIT_LIMIT_S": "60"}
    with world.process("run", **LEASE, **settings) as process:

        def audited() -> list[tuple]:
            return world.clickhouse.execute(
                f"SELECT {COLUMNS} FROM solves WHERE outcome = 'audited' ORDER BY at"
            )

        row = eventually(audited, "an audit", AUDIT_S, lambda: (world.solves(), process.tail()))[0]
        application, policy, trigger, found, bound, gap, cost, stated, difference, reason = row
        assert (application, policy, trigger) == ("gateway", "spillway", "audit")
        assert bound <= found * (1 + 1e-9) and found <= cost * (1 + 1e-9)
        assert 0 <= gap <= 0.001 and 0 <= difference <= stated + 1e-6
        assert reason.startswith("confirmed: proven within ")
        ((usd, nan),) = world.clickhouse.execute(SOLVED)
        assert usd == pytest.approx(cost) and math.isnan(nan)
        metrics = process.metrics()
        assert metrics["spillway_optimizer_audits_total", "confirmed"] >= 1
        assert metrics["spillway_optimizer_audits_total", "failed"] == 0
        assert ("spillway_optimizer_solves_total", "audited") not in metrics
        assert metrics["spillway_optimizer_audit_relative_gap", ""] <= 0.001

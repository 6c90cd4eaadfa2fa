"""What is audited next, what a proof says about a solve, and the row of it."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.solving.audits import (
    BETTER,
    CONFIRMED,
    UNFINISHED,
    WRONG,
    AuditError,
    Proof,
    next_of,
    verdict,
)
from spillway_optimizer.solving.solves_table import Occasion, audit_row, solve_row

LEAST_GAIN = 0.001
NO_SHARES = np.zeros((0, 1, 1))


def solved(usd: float, bound: float | None, beyond: float = 0.0, tails: float = 0.0) -> Solution:
    evaluation = SimpleNamespace(usd_per_hour=usd, tail_usd_per_hour=tails)
    return Solution(NO_SHARES, NO_SHARES, evaluation, bound, beyond)


def proved(
    usd: float, bound: float, beyond: float = 0.0, loss: float = 0.0, unproven: float | None = None
) -> Proof:
    gap = (usd + beyond - bound) / usd
    rest = gap if unproven is None else unproven
    return Proof(usd, beyond, bound, gap, rest, loss, 2.0, ("a note",), NO_SHARES)


def test_what_limits_cost_is_not_unfinished():
    """A gap of 2 % is a complete proof if the routing without limits is proven.

    The verdict says that it does not prove the choice of destinations.
    """
    audited = solved(102.0, 100.0)
    found = verdict(audited, proved(102.0, 100.0, loss=0.02, unproven=0.0), LEAST_GAIN)
    assert found.outcome == CONFIRMED
    assert found.reason == (
        "proven within 0.00% of the global optimum, apart from which destinations were chosen: "
        "the limits on them cost 2.00%"
    )


def test_limits_and_tail_targets_are_both_named():
    """Neither is part of what is proven."""
    proof = proved(102.0, 100.0, loss=0.015, unproven=0.0)
    assert verdict(solved(102.0, 100.0, tails=0.5), proof, LEAST_GAIN).reason == (
        "proven within 0.00% of the global optimum, apart from which destinations were chosen: "
        "the limits on them cost 1.50%, and from tail targets, which no bound contains"
    )


def test_a_large_loss_does_not_hide_that_nothing_is_proven():
    """The routing without limits costs 1.0 at a bound of 0.5, the one within them 2.45."""
    proof = proved(2.45, 0.5, loss=1.45, unproven=0.5)
    assert verdict(solved(2.45, 0.5), proof, LEAST_GAIN).outcome == UNFINISHED


def test_a_penalty_without_an_objective_is_a_large_gap():
    """Nothing is proven then. Without a penalty there is nothing to gain, and the gap is 0."""
    audited = solved(0.0, 0.0, beyond=5.0)
    assert audited.relative_gap is not None and 1.0 < audited.relative_gap < math.inf
    assert solved(0.0, 0.0).relative_gap == 0.0 and solved(0.0, 5.0, beyond=5.0).relative_gap == 0.0
    found = verdict(audited, proved(1e-3, 0.0, beyond=1.0), LEAST_GAIN)
    assert found.outcome == BETTER and found.difference > 1.0


def test_the_application_whose_audit_is_longest_ago_is_next():
    """One that was never audited comes first. None is due while the last audit is recent."""
    assert next_of(["b", "a"], {}, 100.0, 60.0) == "a"
    assert next_of(["a", "b", "c"], {"a": 10.0, "b": 5.0}, 100.0, 60.0) == "c"
    assert next_of(["a", "b"], {"a": 10.0, "b": 5.0}, 100.0, 60.0) == "b"
    assert next_of(["a", "b"], {"a": 50.0, "b": 5.0}, 100.0, 60.0) is None
    assert next_of([], {"a": 5.0}, 100.0, 60.0) is None


@pytest.mark.parametrize(
    ("audited", "proof", "outcome", "difference"),
    [
        (solved(100.0, 99.95), proved(100.0, 99.95), CONFIRMED, 0.0),
        (solved(100.0, 90.0), proved(99.95, 99.93), CONFIRMED, 0.0005),
        (solved(100.0, 90.0), proved(100.0, 95.0), UNFINISHED, 0.0),
        (solved(100.0, 90.0), proved(98.0, 97.0), BETTER, 0.02),
        (solved(100.0, None), proved(98.0, 97.0), BETTER, 0.02),
        (solved(100.0, 99.0), proved(98.0, 97.99), WRONG, 0.02),
        # Less than is ever proposed, but the bound does not hold.
        (solved(100.0, 99.99), proved(99.95, 99.94), WRONG, 0.0005),
        # Penalties count in costs and bounds, and not in the denominator.
        (solved(100.0, 150.0, 100.0), proved(110.0, 159.0, 50.0), BETTER, 0.4),
        (solved(100.0, 170.0, 100.0), proved(110.0, 159.0, 50.0), WRONG, 0.4),
        # The bound differs from the cost by the arithmetic of two solvers.
        (solved(100.0, 100.00000001), proved(100.0, 99.99), CONFIRMED, 0.0),
        (solved(0.0, 0.0), proved(1e-12, 1e-12), CONFIRMED, 0.0),
    ],
)
def test_a_proof_confirms_betters_or_refutes_a_solve(audited, proof, outcome, difference):
    """The difference is that of the best known routing, and decides with the bound of the solve."""
    found = verdict(audited, proof, LEAST_GAIN)
    assert (found.outcome, found.difference) == (outcome, pytest.approx(difference))


def test_the_verdict_names_its_figures():
    """The reason has the difference, the stated gap, and what the audit proved."""
    assert verdict(solved(100.0, 99.0), proved(98.0, 97.0), LEAST_GAIN).reason == (
        "a routing costs 2.00% less, and the solve had stated a gap of 1.00%"
    )
    assert verdict(solved(100.0, 90.0), proved(100.0, 95.0), LEAST_GAIN).reason == (
        "the time was over; proven within 5.00% of the global optimum"
    )


def test_the_row_of_an_audit_has_the_columns_of_a_solve():
    """It has the proof in place of the solution, and the audited solve's time, window and gap.

    The columns of audits are NaN in a row of a solve.
    """
    occasion = Occasion(1_767_225_660.0, "1-2", "spillway", "period")
    audited = solved(100.0, 99.0, beyond=3.0)
    row = audit_row(occasion, "better: so", "shop", audited, proved(98.0, 97.0, beyond=3.0), 0.02)
    other = solve_row(occasion, "unchanged", "")
    assert list(row) == list(other)
    assert (row["outcome"], row["trigger"], row["application"]) == ("audited", "audit", "shop")
    assert (row["at"], row["input_window"], row["notes"]) == (other["at"], "1-2", ["a note"])
    assert (row["solution_usd_per_hour"], row["bound_usd_per_hour"], row["duration_ms"]) == (98, 97, 2000)
    assert (row["audited_usd_per_hour"], row["audited_gap"]) == (103.0, audited.relative_gap)
    assert row["audit_difference"] == 0.02 and math.isnan(row["objective_usd_per_hour"])
    assert all(
        math.isnan(other[name]) for name in ("audited_usd_per_hour", "audited_gap", "audit_difference")
    )


def test_a_proof_that_cannot_be_read_is_an_error():
    """A key that is missing is named."""
    with pytest.raises(AuditError, match="beyond_usd_per_hour"):
        Proof.of({"usd_per_hour": 1.0})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bound_usd_per_hour", math.nan, "bound_usd_per_hour: nan; allowed: finite numbers"),
        ("unproven", math.inf, "unproven: inf; allowed: finite numbers"),
        ("usd_per_hour", 10**400, "OverflowError"),
        ("relative_gap", None, "TypeError"),
        ("shares", [[[math.nan]]], "shares: allowed: finite numbers of at least 0"),
        ("shares", [[[-0.1]]], "shares: allowed: finite numbers of at least 0"),
    ],
)
def test_a_proof_with_numbers_that_mean_nothing_is_an_error(key, value, message):
    """Comparisons with NaN are false, which would confirm any solve."""
    names = ("usd_per_hour", "beyond_usd_per_hour", "bound_usd_per_hour", "relative_gap", "unproven",
             "limits_loss", "seconds")  # fmt: skip
    given = dict.fromkeys(names, 1.0) | {"notes": [], "shares": [[[1.0]]]}
    assert Proof.of(given).shares.tolist() == [[[1.0]]]
    with pytest.raises(AuditError, match=message):
        Proof.of(given | {key: value})

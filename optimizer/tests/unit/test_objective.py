import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_optimizer import ProblemError
from spillway_optimizer.policies.nearest import nearest_shares
from spillway_optimizer.problem.objective import (
    U_LINEAR,
    evaluate_shares,
    marginal_ms,
    queue_factor,
    queue_slope,
)


@given(st.floats(0, 3), st.floats(0, 3), st.floats(0, 1))
def test_queue_factor_is_convex_and_increasing_into_overload(x, y, t):
    """A mix of two loads never costs more than the mix of their costs, even beyond capacity."""
    mixed = float(queue_factor(t * x + (1 - t) * y))
    assert mixed <= t * float(queue_factor(x)) + (1 - t) * float(queue_factor(y)) + 1e-7
    assert queue_factor(max(x, y)) >= queue_factor(min(x, y))


def test_the_extension_is_smooth_where_it_starts():
    """Value and slope are continuous at U_LINEAR, so the solver sees no kink."""
    below, above = U_LINEAR - 1e-9, U_LINEAR + 1e-9
    assert float(queue_factor(below)) == pytest.approx(float(queue_factor(above)), rel=1e-5)
    assert float(queue_slope(below)) == pytest.approx(float(queue_slope(above)), rel=1e-5)
    assert np.isfinite(queue_factor(5.0))


def test_the_terms_are_those_of_the_paper(chain):
    """Compute, network and egress of a two-hop chain with half of its calls remote, by hand."""
    problem = chain({"west": 100.0}, capacity=400.0)
    shares = np.array([[[0.5, 0.5], [0.0, 1.0]]])
    e = evaluate_shares(problem, shares)
    web = 100 * (3 / (1 - 100 / 400) + 7)
    db = 2 * 50 * (3 / (1 - 50 / 400) + 7)
    assert e.compute_ms_rps == pytest.approx(web + db)
    assert e.network_ms_rps == pytest.approx(50 * 25)
    # 1 000 bytes go from west to east, and 10 000 come back.
    assert e.egress_usd_per_hour == pytest.approx(50 * 3600 * 11_000 / 1e9 * 0.02)
    assert e.usd_per_hour == pytest.approx((web + db + 1250) * 1e-7 * 3600 + e.egress_usd_per_hour)
    assert e.mean_latency_ms == pytest.approx((web + db + 1250) / 100)


@pytest.mark.parametrize("west", [100.0, 350.0, 497.0, 700.0])
def test_marginal_cost_is_the_gradient(chain, west):
    """One more request costs what the objective says, in overload too."""
    at, more = chain({"west": west, "east": 60.0}), chain({"west": west + 1e-4, "east": 60.0})
    shares = nearest_shares(at)
    before, after = evaluate_shares(at, shares), evaluate_shares(more, shares)
    # The marginal cost of the whole chain served locally. This is the cheapest way while remote
    # calls are expensive.
    marginal = marginal_ms(chain({"west": west, "east": 60.0}, rtt=1e6), before.load)[0, 0]
    assert marginal == pytest.approx(
        (after.usd_per_hour - before.usd_per_hour) / 1e-4 / 3600 / 1e-7, rel=1e-3
    )


def test_shares_that_lose_requests_are_refused(chain):
    """Flow conservation is checked, and the error names the place."""
    with pytest.raises(ProblemError, match="web GET /x -> db GET /x.*'west'"):
        evaluate_shares(chain({"west": 10.0}), np.array([[[0.5, 0.4], [0.0, 1.0]]]))

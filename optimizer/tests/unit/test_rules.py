import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import Origin
from spillway_contracts import topology
from spillway_optimizer import ProblemError
from spillway_optimizer.model.model import Window
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.rules import (
    TOTAL,
    RuleKey,
    largest_remainder,
    max_difference,
    merge,
    of_ruleset,
    round_above,
    rounded,
    to_shares,
)
from spillway_optimizer.problem.solution import from_shares
from spillway_optimizer.rulesets.assemble import Stamp, UnverifiedError, from_rules, from_solution
from spillway_optimizer.rulesets.integer_weights import integer_rules

TOPOLOGY = topology.load(Path(__file__).resolve().parents[3] / "contracts" / "golden" / "topology.yaml")
ROUTES = [RuleKey("west", "web", "db GET /x"), RuleKey("east", "web", "db GET /x")]
STAMP = Stamp(
    "id", "spillway", Origin.ORIGIN_OPTIMIZER, Window(1.0, 2.0), 3.0, 120.0, ("db GET /x", "web GET /x")
)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda s: sum(s) > 1e-6))
def test_integer_weights_sum_to_the_total_and_stay_near(shares):
    """Largest remainder: the sum is exact, and no weight is negative.

    No weight differs from its share by a whole part.
    """
    weights = largest_remainder(np.array(shares))
    assert weights.sum() == TOTAL
    assert (weights >= 0).all()
    assert np.abs(weights - np.array(shares) / sum(shares) * TOTAL).max() < 1 + 1e-6


def test_an_extracted_ruleset_predicts_what_its_integer_rules_cost(chain):
    """Every row that can be called has a rule, including east's idle one.

    The loss compared with the solution is reported. The reason names flows and marginal costs.
    """
    problem = chain({"west": 480.0})
    extracted = from_solution(problem, REGISTRY["spillway"]().route(problem), STAMP, TOPOLOGY)
    ruleset = extracted.ruleset
    assert [(r.source_cluster, r.source_service) for r in ruleset.rules] == [("east", "web"), ("west", "web")]
    assert all(sum(d.weight for d in r.destinations) == TOTAL for r in ruleset.rules)
    assert abs(extracted.loss) < 1e-5
    again = from_shares(problem, to_shares(problem, of_ruleset(ruleset))).evaluation
    assert ruleset.predicted.mean_latency_ms == pytest.approx(again.mean_latency_ms)
    assert "makes no such calls now" in ruleset.rules[0].reason
    assert "west serves" in ruleset.rules[1].reason and "of its 480 req/s" in ruleset.rules[1].reason
    east = next(d for d in ruleset.rules[1].destinations if d.cluster == "east")
    assert east.predicted_network_ms == 25.0
    assert east.predicted_compute_ms == pytest.approx(again.latency_ms[1, problem.clusters.index("east")])


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(1, 300), st.floats(1, 300))
def test_callers_of_one_route_are_merged_by_volume(p, a, b):
    """Two caller classes have different splits of one callee class.

    Envoy sees one route, whose weights are the split of all calls together.
    """
    problem = _two_callers(a, b)
    rows = [[1 - p[0], p[0]], [1 - p[1], p[1]], [1 - p[2], p[2]], [1 - p[3], p[3]]]
    solution = from_shares(problem, np.array([rows[:2], rows[2:]]))
    rules = rounded(problem, merge(problem, solution.shares, solution.flows))
    weights = rules[RuleKey("west", "web", "db GET /x")]
    expected = solution.flows[:, 0, 1].sum() / solution.flows[:, 0].sum()
    assert weights.get("east", 0) / TOTAL == pytest.approx(expected, abs=1.01 / TOTAL)
    assert len(rules) == 2
    extracted = from_solution(problem, solution, STAMP, TOPOLOGY)
    # There is one destination hop, so merging keeps every load. The loss is that of rounding.
    assert abs(extracted.loss) < 1e-3


def _two_callers(a: float, b: float) -> Problem:
    classes = {"web GET /a": "web", "web GET /b": "web", "db GET /x": "db"}
    names = ("west", "east")
    return Problem(
        clusters=names,
        classes=classes,
        edges=tuple(Edge(f"web GET /{k}", "db GET /x", 1.0, 100.0, 100.0) for k in ("a", "b")),
        demand_rps={("west", "web GET /a"): a, ("west", "web GET /b"): b, ("east", "web GET /a"): 5.0},
        curves=dict.fromkeys(classes, Curve(1.0, 1.0)),
        capacity_rps={(s, c): 2000.0 for s in ("web", "db") for c in names},
        placement=frozenset((s, c) for s in ("web", "db") for c in names),
        rtt_ms={(i, j): 0.0 if i == j else 20.0 for i in names for j in names},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )


def test_rules_that_no_longer_fit_are_refused(chain):
    """Two errors are named: a destination that lost its service, and a route without a rule."""
    rules = {RuleKey("west", "web", "db GET /x"): {"east": TOTAL}}
    with pytest.raises(ProblemError, match="'east', which cannot serve it"):
        to_shares(chain({"west": 1.0}, absent=frozenset({("db", "east")})), rules)
    with pytest.raises(ProblemError, match="no rule for .*'east'"):
        to_shares(chain({"west": 1.0}), rules)


def test_what_breaks_the_contract_is_not_emitted(chain):
    """A ruleset without an id is not returned."""
    problem = chain({"west": 1.0})
    solution = REGISTRY["local"]().route(problem)
    rules = rounded(problem, merge(problem, solution.shares, solution.flows))
    stamp = Stamp("", "local", Origin.ORIGIN_OPTIMIZER, Window(1.0, 2.0), 3.0, 120.0, ())
    with pytest.raises(UnverifiedError, match="id: empty"):
        from_rules(problem, rules, stamp, TOPOLOGY)


def test_difference_of_rules():
    """The difference is the largest weight change. A new rule counts as a full change."""
    key = RuleKey("west", "web", "db GET /x")
    assert max_difference({key: {"west": 6000, "east": 4000}}, {key: {"west": 10_000}}) == 4000
    assert max_difference({}, {key: {"west": TOTAL}}) == TOTAL


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda s: sum(s) > 1e-6),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.floats(0, 1),
)
def test_no_weight_is_rounded_below_its_floor(shares, floor, part):
    """Shares lie above floors that sum to at most 1.

    The integers sum to the total and satisfy the floors, also with thrifty rounding.
    """
    floor = np.array(floor) * part / max(sum(floor), 1e-9)
    kept = floor + (1 - floor.sum()) * np.array(shares) / sum(shares)
    for dear in (None, np.array([3.0, 1.0, 2.0])):
        weights = round_above(kept, floor, dear)
        assert weights.sum() == TOTAL and (weights >= 0).all()
        assert (weights > floor * TOTAL - 1).all()
        assert floor.sum() > 0.999 or (weights >= floor * TOTAL - 1e-6).all()


def test_a_budget_is_kept_by_integers(chain):
    """The nearest integers would send one part too many away, so the leftover part stays local."""
    limit = Constraints(egress_usd_per_hour=1e-3)
    problem = dataclasses.replace(chain({"west": 490.0, "east": 50.0}), constraints=limit)
    shares = to_shares(problem, {k: {"west": 10_000} if k[0] == "west" else {"east": 10_000} for k in ROUTES})
    shares[0, 0] = [1 - 25.75e-4, 25.75e-4]
    solution = from_shares(problem, shares)
    assert solution.evaluation.egress_usd_per_hour <= 1e-3
    near = rounded(problem, merge(problem, solution.shares, solution.flows))
    assert near[ROUTES[0]]["east"] == 26
    kept = integer_rules(problem, project(problem, solution))
    assert kept[ROUTES[0]]["east"] == 25
    assert from_shares(problem, to_shares(problem, kept)).evaluation.egress_usd_per_hour <= 1e-3


def test_a_pin_is_emitted_as_it_is_and_priced_as_it_is_served(chain):
    """A pin to a cluster that cannot serve now is emitted unchanged.

    It is priced as if the other pinned clusters served its calls. A pin of a route without calls is
    in the ruleset too.
    """
    idle = RuleKey("east", "shop", "db GET /y")
    pins = {ROUTES[0]: {"west": 0.3, "east": 0.7}, idle: {"west": 1.0}}
    gone = frozenset({("db", "east")})
    problem = dataclasses.replace(chain({"west": 100.0}, absent=gone), constraints=Constraints(pinned=pins))
    extracted = from_solution(problem, REGISTRY["local"]().route(problem), STAMP, TOPOLOGY)
    emitted = of_ruleset(extracted.ruleset)
    assert emitted[ROUTES[0]] == {"west": 3000, "east": 7000} and emitted[idle] == {"west": 10_000}
    assert extracted.evaluation.load[1, 0] == pytest.approx(100.0)

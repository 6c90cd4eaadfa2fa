import dataclasses

import pytest
from spillway_optimizer import ProblemError
from spillway_optimizer.problem import problem_json
from spillway_optimizer.problem.problem import Curve, Edge


def test_a_cycle_is_refused_and_named(chain):
    """Classes that call each other in a cycle have no finite load. The message shows the cycle."""
    problem = chain({"west": 1.0}, services=("a", "b", "c"))
    back = Edge("c GET /x", "b GET /x", 0.5, 1.0, 1.0)
    with pytest.raises(
        ProblemError, match=r"cycle: .*b GET /x -> .*c GET /x|cycle: .*c GET /x -> .*b GET /x"
    ):
        dataclasses.replace(problem, edges=(*problem.edges, back))


def test_everything_wrong_is_listed_at_once(chain):
    """Each problem names its key and value."""
    problem = chain({"west": 1.0})
    with pytest.raises(ProblemError) as error:
        dataclasses.replace(
            problem,
            usd_per_ms=0.0,
            curves={"web GET /x": Curve(-1.0, 1.0), "db GET /x": Curve(1.0, 1.0, 0.0)},
            demand_rps={("north", "web GET /x"): 1.0},
        )
    for part in ("usd_per_ms: 0.0", "curves[web GET /x].a_ms: -1.0", "norm_weight: 0.0", "unknown 'north'"):
        assert part in str(error.value)


def test_demand_that_nothing_can_serve_is_refused(chain):
    """A callee that is placed nowhere leaves no routing, and the error names it."""
    with pytest.raises(ProblemError, match="nothing can serve 'db GET /x'"):
        chain({"west": 1.0}, absent=frozenset({("db", "west"), ("db", "east")}))


def test_a_cluster_whose_callees_are_out_of_reach_is_not_used(chain):
    """West lacks the last service and has no path to east.

    So no call may be sent to the middle service in west.
    """
    rtt = {(c, c): 0.0 for c in ("west", "east")} | {("east", "west"): 25.0}
    problem = chain({"east": 10.0}, services=("a", "b", "c"), absent=frozenset({("c", "west")}), rtt=rtt)
    west, east = 0, 1
    assert not problem.layout.usable[0, east, west]
    assert problem.layout.usable[0, east, east]


def test_json_round_trip(chain):
    """A problem is the same after it is written and read."""
    problem = chain({"west": 30.0, "east": 4.0}, thresholds={("db", "west"): 20.0})
    problem = dataclasses.replace(problem, latency_values={"web GET /x": 5.0})
    problem = dataclasses.replace(problem, extrapolation_caution=2.0, seen_utilisation={"db": 0.7})
    assert problem_json.from_document(problem_json.to_document(problem)) == problem


def test_a_document_of_another_shape_is_refused():
    """The error names the missing key."""
    with pytest.raises(ProblemError, match="demand_rps"):
        problem_json.from_document({"clusters": []})

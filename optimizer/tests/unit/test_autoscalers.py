"""Weights and an autoscaler on the same load: pods come, calls come home, and all is still."""

import math
from dataclasses import replace

import pytest
from autoscaled import POD_RPS, Horizontal, Loop, Moment, topology
from hypothesis import given
from hypothesis import strategies as st
from spillway_optimizer.inputs.scale_outs import ScaleOuts, declared
from spillway_optimizer.model.autoscalers import MOST, SIGNAL, Room, kept, rooms
from spillway_optimizer.model.capacities import Capacities
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.binding import binding
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.problem_json import from_document, to_document
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.rulesets.verify import verify
from spillway_optimizer.solvers.fast import Fast
from two_clusters import two_clusters

PLACE, PODS = ("backend", "west"), {("west", "backend"): 4}
DB = ("db", "west")


def _room(capacity: Capacities, pods=PODS, success=None, ceiling=None):
    autoscalers = declared(topology(0.6, 10))
    return rooms(autoscalers, capacity, pods, success or {}, ScaleOuts(), ceiling, 0.0).get(PLACE)


def _capacities(rps: float, whole_rps: float | None = None) -> Capacities:
    return Capacities({PLACE: rps}, whole_rps={PLACE: rps if whole_rps is None else whole_rps})


def test_what_stays_is_a_fifth_above_the_target_while_pods_can_be_added():
    """Below the maximum 1.2 * 0.6 of the capacity, and at the maximum the target itself."""
    assert _room(_capacities(400)) == Room(pytest.approx(0.72 * 400), True, 4, 10, 4)
    assert _room(_capacities(400), pods={("west", "backend"): 10}) == Room(
        pytest.approx(0.6 * 400), False, 10, 10, 10
    )


def test_new_pods_count_for_the_autoscaler_and_hardly_for_latency():
    """Of 8 pods 4 are new: the capacity is that of 5, and 0.9 of it stays at most."""
    found = _room(_capacities(500, 800), pods={("west", "backend"): 8})
    assert (found.rps, found.counted) == (pytest.approx(MOST * 500), 5)
    assert _room(_capacities(500, 520)).rps == pytest.approx(0.72 * 520)


@pytest.mark.parametrize(
    ("why", "arguments"),
    [
        ("pods are unknown", {"pods": {}}),
        ("no capacity is known", {"capacity": Capacities({})}),
        ("its calls fail", {"success": {("backend GET /a", "west"): 0.9}}),
    ],
)
def test_nothing_is_kept_where(why, arguments):
    assert _room(**{"capacity": _capacities(400)} | arguments) is None, why


def test_the_ceiling_of_the_operator_comes_first():
    assert _room(_capacities(400), ceiling=0.5).rps == pytest.approx(0.5 * 400)


def test_a_pod_that_does_not_come_is_awaited_for_a_time_and_again_later():
    """60 s, then four times as long not. A restarted pod is no new one, a fifth pod is."""
    state, kinds = ScaleOuts(), []
    for now in range(0, 400, 20):
        waits = not state.gave_up(PLACE, now)
        kinds.append(waits)
        live = {("west", "backend"): 3 if now in (20, 340) else 4}
        state = state.after({PLACE} if waits else set(), live, now, 60.0)
    assert kinds == [True] * 3 + [False] * 12 + [True] * 3 + [False] * 2
    assert not state.after({PLACE}, {("west", "backend"): 5}, 400, 60.0).gave_up(PLACE, 400)
    assert state.after({PLACE}, {}, 400, 60.0).gave_up(PLACE, 400)


def test_a_scale_out_that_is_no_longer_needed_is_forgotten():
    state = ScaleOuts().after({PLACE}, PODS, 0.0, 60.0)
    assert state.waits and not state.after(set(), PODS, 20.0, 60.0).waits


def _local(key: RuleKey) -> dict[str, float]:
    return {key.source_cluster: 1.0}


def _half_upstream(key: RuleKey) -> dict[str, float]:
    return {"west": 0.5, "east": 0.5} if key.source_service == "edge" else _local(key)


def test_the_calls_that_lead_to_the_service_stay_too(chain):
    """150 of 300 calls fit. Both hops keep half, so that no load leaves at the first one."""
    problem = chain({"west": 300}, services=("edge", "web", "db"))
    found = kept(problem, {DB: Room(150.0, True, 2, 5, 2.0)}, _local, _local)
    assert found.shares == {("web GET /x", "west"): 0.5, ("db GET /x", "west"): 0.5}
    assert found.expected == {DB} and found.pods == {DB: 2.0}
    assert found.notes == (
        "autoscalers: 50% of 'db' stay in 'west': 2 of at most 5 pods; one more is expected",
    )


def test_where_calls_left_one_hop_earlier_all_that_is_left_stays(chain):
    """150 fit, and half of the web's requests are in the east: their 150 calls in the west stay."""
    problem = chain({"west": 300}, services=("edge", "web", "db"))
    found = kept(problem, {DB: Room(150.0, True, 2, 5, 2.0)}, _half_upstream, _local)
    assert found.shares["web GET /x", "west"] == 0.5
    assert found.shares["db GET /x", "west"] == pytest.approx(1.0, abs=0.002)


def test_a_service_on_the_way_keeps_what_it_can_serve(chain):
    """The web serves 200: 0.9 of it are 60 % of 300, although all calls of the db fit."""
    capacity = {
        (s, c): 200.0 if s == "web" else 500.0 for s in ("edge", "web", "db") for c in ("west", "east")
    }
    problem = chain({"west": 300}, services=("edge", "web", "db"), capacity=capacity)
    found = kept(problem, {DB: Room(400.0, True, 2, 5, 2.0)}, _local, _local)
    assert found.shares == {("web GET /x", "west"): pytest.approx(0.6), ("db GET /x", "west"): 1.0}
    assert not found.expected and not found.notes


def test_calls_that_others_cause_need_not_stay(chain):
    """East's requests of the web come to the west: of 400 calls there, 200 are the west's own."""
    problem = chain({"west": 200, "east": 200}, services=("edge", "web", "db"))

    def all_west(key: RuleKey) -> dict[str, float]:
        return {"west": 1.0} if key.source_service == "edge" else _local(key)

    found = kept(problem, {DB: Room(250.0, True, 2, 5, 2.0)}, all_west, _local)
    assert found.shares["db GET /x", "west"] == pytest.approx(0.5)


@given(st.floats(0, 1), st.sampled_from([0.0, 0.3, 0.8]), st.sampled_from([1.0, 0.2]))
def test_solved_rules_keep_it_and_verification_agrees(least, local, shift):
    """With the minimum local share and the maximum shift, from rules in force that are all east."""
    problem = _spilling(least, local, shift)
    rules = integer_rules(problem, project(problem, Fast().route(problem)))
    [weights] = [w for key, w in rules.items() if key.source_cluster == "west"]
    assert weights.get("west", 0) / 10_000 >= min(max(least, local), shift) - 2e-4
    assert verify(problem, rules, None) == []


def _spilling(least: float, local: float = 0.0, shift: float = 1.0):
    """A web whose db in the west is dear."""
    limits = Constraints(
        kept_local={("db GET /x", "west"): least},
        min_local_share=local,
        max_shift=shift,
        in_force={("west", "web", f"db GET /{k}"): {"east": 1.0} for k in "xy"} if shift < 1 else {},
    )
    problem = two_clusters(limits)
    classes = {k: s for k, s in problem.classes.items() if k.endswith("x")}
    return replace(
        problem,
        classes=classes,
        edges=problem.edges[:1],
        demand_rps={("west", "web GET /x"): 310.0},
        curves={k: problem.curves[k] for k in classes},
        failure_ms={("db GET /x", "west"): 1000.0},
    )


def test_rules_that_keep_less_are_found_and_noise_is_not():
    """Of 60 %, a twentieth may be missing. Of everything, nothing may."""
    key = RuleKey("west", "web", "db GET /x")

    def wrong(least: float, west: int) -> list[str]:
        problem = _spilling(least)
        rules = integer_rules(problem, project(problem, Fast().route(problem)))
        return verify(problem, rules | {key: {"west": west, "east": 10_000 - west}}, None)

    assert wrong(0.6, 5700) == [] and wrong(1.0, 10_000) == []
    assert wrong(0.6, 5600) == [
        "rule west/web -> db GET /x: 5600 of 10000 stay local; 5699 should, for the autoscaler there"
    ]
    assert len(wrong(1.0, 9900)) == 1


def test_what_stays_is_in_the_document_of_a_problem_and_named_as_binding():
    problem = _spilling(0.6)
    assert from_document(to_document(problem)).constraints == problem.constraints
    solution = Fast().route(problem)
    assert "what stays for an autoscaler on 1 route" in binding(problem, solution.flows, solution.evaluation)


def _last(moments: list[Moment], seconds: float) -> list[Moment]:
    return [moment for moment in moments if moment.at_s > moments[-1].at_s - seconds]


@pytest.mark.parametrize(
    ("target", "start_s", "rps"), [(0.5, 10.0, 250.0), (0.55, 30.0, 480.0), (0.7, 45.0, 420.0)]
)
def test_pods_come_and_calls_come_home(target, start_s, rps):
    """A jump of load to what 5 to 9 pods serve at the target, on 2 pods.

    Pods only rise, and at most one more comes than is needed. From then on nothing changes for ten
    minutes. Meanwhile no pod is overloaded, once the first rules are there.
    """
    loop = Loop(Horizontal(target, 20, 2, start_s=start_s))
    calm = loop.run(60, POD_RPS * target * 1.5)
    assert {moment.pods for moment in calm} == {2}
    moments = loop.run(1800, rps)
    pods = [moment.pods for moment in moments]
    assert pods == sorted(pods)
    assert math.ceil(rps / POD_RPS / target / 1.1) <= pods[-1] <= math.ceil(rps / POD_RPS / target) + 1
    still = _last(moments, 600)
    assert {(moment.pods, moment.stays) for moment in still} == {(pods[-1], 1.0)}
    assert max(moment.utilisation for moment in moments[3:]) <= 0.95


def test_without_a_declaration_the_autoscaler_never_sees_the_load():
    """Load of 6 pods: the calls that are sent away stay away.

    The first seconds, before there are new rules, bring at most one pod.
    """
    loop = Loop(Horizontal(0.6, 20, 2), declared=False)
    loop.run(60, 90.0)
    moments = loop.run(900, 340.0)
    assert moments[-1].pods <= 3 and len({moment.pods for moment in moments[-120:]}) == 1
    assert all(moment.stays < 0.6 and moment.utilisation < 1.1 * 0.6 for moment in moments[-60:])


def test_at_the_most_pods_the_rest_goes_elsewhere_and_nothing_swings():
    """Load of 8 pods where 4 are allowed: they stay at their target, so none is taken away."""
    loop = Loop(Horizontal(0.6, 4, 2, stabilisation_s=30.0))
    moments = loop.run(1500, 480.0)
    still = _last(moments, 900)
    assert {moment.pods for moment in still} == {4}
    assert all(0.9 * 0.6 < moment.utilisation < 1.1 * 0.6 for moment in still)
    assert max(m.stays for m in still) - min(m.stays for m in still) < 0.06


def test_an_autoscaler_that_does_nothing_is_not_awaited_for_ever():
    """For 120 s the load is a fifth above the target, and then the target."""
    loop = Loop(Horizontal(0.6, 10, 2, broken=True), seed=None, pod_wait_s=120.0)
    moments = loop.run(500, 330.0)
    waits = [m.utilisation for m in moments if 20 < m.at_s < 110]
    after = [m.utilisation for m in moments if 150 < m.at_s]
    assert all(u == pytest.approx(SIGNAL * 0.6, rel=0.06) for u in waits)
    assert all(u < 1.1 * 0.6 for u in after)


def test_pods_that_leave_take_no_calls_home_with_them():
    """The load falls to what 2 of 5 pods serve: they leave, and the calls stay."""
    loop = Loop(Horizontal(0.6, 10, 5))
    loop.run(60, 280.0)
    moments = loop.run(1500, 110.0)
    assert moments[-1].pods == 2 and all(moment.stays == 1.0 for moment in moments[3:])


def test_papa_leaves_calls_alone_that_an_autoscaler_acts_on():
    """At the target, the other cluster is faster, and PAPA would move calls there step by step."""
    loop = Loop(Horizontal(0.7, 4, 4), papa=True, seed=None)
    assert {moment.stays for moment in loop.run(400, 270.0)[1:]} == {1.0}

import dataclasses

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import names
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.judging.memory import Reversal, confirmed
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.rules import RuleKey, max_difference
from spillway_optimizer.rulesets.decide import Action, Memory, Thresholds, decide, renewal
from spillway_optimizer.rulesets.integer_weights import integer_rules

WEST, EAST = RuleKey("west", "web", "db GET /x"), RuleKey("east", "web", "db GET /x")
LOCAL = {"east": 10_000}


def _rules(west_share: int):
    return {EAST: LOCAL, WEST: {"west": west_share, "east": 10_000 - west_share}}


def _in_force(rules, origin=Origin.ORIGIN_OPTIMIZER, policy="spillway"):
    return InForce(rules, origin, policy, {"west": 7, "east": 7}, "id", {})


def _memory(rules, at=100.0):
    return Memory("spillway", rules, rules, at)


def _decide(problem, memory, candidate, in_force, now=101.0, policy="spillway", minimises=True):
    return decide(memory, policy, candidate, minimises, problem, in_force, now, Thresholds())


def _changed_by_papa(in_force, version=7):
    """Returns the rules in force, with PAPA as the last to change the rule of west in `version`.

    The origin of the ruleset itself is not PAPA.
    """
    ruleset = Ruleset(version=version)
    rule = ruleset.rules.add(
        source_cluster="west", source_service="web", changed_version=version, changed_by=2
    )
    rule.traffic_class.service, rule.traffic_class.method, rule.traffic_class.path_template = (
        "db",
        "GET",
        "/x",
    )
    return dataclasses.replace(in_force, rulesets={"west": ruleset})


def test_only_what_papa_changed_after_the_last_proposal_is_adopted(chain):
    """Weights that a publisher has clamped are not PAPA's, so the next step is proposed again.

    Changes that PAPA made before the last proposal's base version are part of that proposal, or
    overridden by it.
    """
    problem, memory = chain({"west": 480.0}), _memory(_rules(7000))
    clamped = {**_rules(6500), EAST: {"east": 9000, "west": 1000}}
    decision = _decide(problem, memory, _rules(7050), _changed_by_papa(_in_force(clamped)))
    assert (decision.action, decision.rules) == (Action.RENEW, _rules(6500))
    late = dataclasses.replace(memory, base=7)
    decision = _decide(problem, late, _rules(7050), _changed_by_papa(_in_force(_rules(6500))))
    assert (decision.action, decision.rules) == (Action.RENEW, _rules(7000))


def test_a_new_leader_and_a_new_policy_propose_at_once(chain):
    """Without earlier rules, or with another policy, the candidate is proposed."""
    problem = chain({"west": 400.0})
    assert _decide(problem, Memory(), _rules(7000), None).action is Action.PROPOSE
    memory = _memory(_rules(7000))
    decision = _decide(
        problem, memory, _rules(7000), _in_force(_rules(7000)), policy="local", minimises=False
    )
    assert decision.action is Action.PROPOSE and decision.memory.policy == "local"


@pytest.mark.parametrize(
    ("limit", "before", "after", "why"),
    [
        ({"min_share": 0.01}, 9950, 10_000, "50 of 10000 to 'east'; minimum_share is 100"),
        ({"max_destinations": 1}, 7000, 10_000, "2 destinations; maximum_destinations is 1"),
        ({"whole": frozenset({"db GET /x"})}, 7000, 10_000, "its class stays whole"),
    ],
)
def test_a_new_limit_is_put_in_force_although_it_costs_something(chain, limit, before, after, why):
    """No gain could ever do that. Rules that keep the limit too stay, and so do an operator's."""
    problem = dataclasses.replace(chain({"west": 480.0}), constraints=Constraints(**limit))
    kept, candidate = ({WEST: {"west": west, "east": 10_000 - west}, EAST: LOCAL} for west in (before, after))
    candidate[WEST] = {"west": 10_000}
    decision = _decide(problem, _memory(kept), candidate, _in_force(kept))
    assert decision.action is Action.PROPOSE and why in decision.reason
    assert decision.rules == candidate
    assert _decide(problem, _memory(candidate), candidate, _in_force(candidate)).action is Action.WAIT
    operators = _in_force(kept, Origin.ORIGIN_OPERATOR)
    assert _decide(problem, _memory(kept), candidate, operators).action is not Action.PROPOSE


def test_small_changes_wait_and_are_renewed_in_time(chain):
    """A difference of 1 % changes nothing.

    After the renewal period, the rules in force are sent again.
    """
    problem, memory = chain({"west": 400.0}), _memory(_rules(7000))
    same = _in_force(_rules(7000))
    assert _decide(problem, memory, _rules(7100), same).action is Action.WAIT
    decision = _decide(problem, memory, _rules(7100), same, now=116.0)
    assert decision.action is Action.RENEW and decision.rules == _rules(7000)
    assert decision.memory.proposed == _rules(7000) and decision.memory.published_at == 116.0


def test_a_large_change_is_proposed_only_when_it_pays(chain):
    """Weights may differ much where the objective is flat. A baseline is not judged by the gain."""
    in_force = _in_force(_rules(9000))
    overloaded = chain({"west": 480.0})
    assert _decide(overloaded, _memory(_rules(9000)), _rules(7000), in_force).action is Action.PROPOSE
    # The opposite change would cost more.
    in_force = _in_force(_rules(7000))
    assert _decide(overloaded, _memory(_rules(7000)), _rules(9000), in_force).action is Action.WAIT
    decision = _decide(overloaded, _memory(_rules(7000)), _rules(9000), in_force, minimises=False)
    assert decision.action is Action.PROPOSE


def test_papas_adjustment_is_kept_and_renewed(chain):
    """A renewal carries the rules that PAPA put in force, until the solution itself changes."""
    problem, memory = chain({"west": 480.0}), _memory(_rules(7000))
    papas = _changed_by_papa(_in_force(_rules(6500)))
    assert _decide(problem, memory, _rules(7050), papas).action is Action.WAIT
    decision = _decide(problem, memory, _rules(7050), papas, now=120.0)
    assert decision.action is Action.RENEW and decision.rules == _rules(6500)
    renewed = _in_force(_rules(6500))
    later = _decide(problem, decision.memory, _rules(7050), renewed, now=140.0)
    assert later.rules == _rules(6500)
    assert _decide(problem, memory, _rules(4000), papas).action in (Action.PROPOSE, Action.WAIT)


def test_a_publisher_that_moves_in_steps_is_asked_again(chain):
    """If the rules in force are not those proposed, the next period proposes them again."""
    decision = _decide(chain({"west": 480.0}), _memory(_rules(4000)), _rules(4000), _in_force(_rules(7000)))
    assert decision.action is Action.RENEW and decision.rules == _rules(4000)


def test_an_operators_ruleset_is_left_alone(chain):
    """Only the periodic renewal continues."""
    held = _in_force(_rules(10_000), Origin.ORIGIN_OPERATOR, "operator")
    assert _decide(chain({"west": 480.0}), _memory(_rules(7000)), _rules(7000), held).action is Action.WAIT


def test_a_lost_destination_is_left_at_once(chain):
    """Rules in force lead to a cluster that no longer serves. The solution replaces them."""
    problem = chain({"west": 100.0}, absent=frozenset({("db", "east")}))
    candidate = {EAST: {"west": 10_000}, WEST: {"west": 10_000}}
    decision = _decide(problem, _memory(_rules(9900)), candidate, _in_force(_rules(9900)))
    assert decision.action is Action.PROPOSE and "no longer serve" in decision.reason


def test_new_routes_keep_what_papa_adjusted(chain):
    """A new class gets its rule, and the others stay as they are in force."""
    problem, memory = (
        chain({"west": 480.0}),
        Memory("spillway", {WEST: _rules(7000)[WEST]}, {WEST: _rules(6500)[WEST]}, 1.0),
    )
    decision = _decide(problem, memory, _rules(7000), _in_force({WEST: _rules(6500)[WEST]}))
    assert decision.action is Action.PROPOSE and decision.rules == _rules(6500)


def _run(chain, demands, thresholds=None, urgent=False, apart=5.0, jumped=False):
    """Returns the decisions of consecutive solves, one for each demand, `apart` seconds apart.

    The rules of each decision are in force at once.
    """
    memory, in_force, decisions = Memory(), None, []
    thresholds = thresholds or Thresholds()
    for step, demand in enumerate(demands):
        problem = chain({"west": demand})
        best = project(problem, REGISTRY["spillway"]().route(problem))
        candidate = integer_rules(problem, best)
        now = 100.0 + apart * step
        decision = decide(
            memory,
            "spillway",
            candidate,
            True,
            problem,
            in_force,
            now,
            thresholds,
            urgent,
            best.evaluation,
            jumped,
        )
        memory, in_force = decision.memory, _in_force(decision.rules)
        decisions.append(decision)
    return decisions


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    base=st.floats(300, 700),
    noise=st.floats(0.0, 0.3),
    first=st.sampled_from([1, -1]),
    min_gain=st.sampled_from([0.0, 0.001, 0.01]),
)
def test_alternating_noise_moves_no_traffic(chain, base, noise, first, min_gain):
    """Demand alternates by up to 30 % from solve to solve.

    Whatever the gain, the first rules stay, except for at most one step into the middle of the
    range.
    """
    demands = [base * (1 + first * noise * (-1) ** i) for i in range(12)]
    decisions = _run(chain, demands, Thresholds(min_gain=min_gain))
    weights = [decision.rules for decision in decisions]
    changes = [i for i in range(1, len(weights)) if max_difference(weights[i - 1], weights[i]) > 0]
    assert len(changes) <= 1
    assert all(decision.action is not Action.PROPOSE for decision in decisions[2:])


def test_a_change_that_lasts_is_followed(chain):
    """A sure gain is followed at once, and a small one when it is seen twice.

    A reversal of the last change is also followed when it is seen twice.
    """

    def proposed(demands, sure_gain):
        thresholds = Thresholds(min_gain=0.0, sure_gain=sure_gain)
        return [d.action is Action.PROPOSE for d in _run(chain, demands, thresholds)]

    assert proposed([400, 480, 480], sure_gain=0.0) == [True, True, False]
    assert proposed([400, 480, 480, 480], sure_gain=0.9) == [True, False, True, False]
    assert proposed([400, 480, 400, 400, 400], sure_gain=0.0) == [True, True, False, True, False]


def test_what_is_urgent_waits_only_to_take_the_last_change_back(chain):
    """A jump of load is followed at once. A jump back is followed if it lasts to the next solve."""
    assert [d.action for d in _run(chain, [480, 550, 480, 480], urgent=True)] == [
        Action.PROPOSE,
        Action.PROPOSE,
        Action.WAIT,
        Action.PROPOSE,
    ]


def test_what_comes_and_goes_every_second_moves_traffic_once(chain):
    """Urgent solves, one second apart, alternate between two loads.

    The second load is followed, and then nothing. A lasting load is followed after hold_s.
    """
    decisions = _run(chain, [480, 550] * 6, urgent=True, apart=1.0)
    assert [d.action is Action.PROPOSE for d in decisions] == [True, True] + [False] * 10
    decisions = _run(chain, [480, 550] + [480] * 6, urgent=True, apart=1.0)
    assert [d.action is Action.PROPOSE for d in decisions] == [True, True] + [False] * 4 + [True, False]


def test_a_jump_of_load_takes_the_last_change_back_at_once(chain):
    """The load is more than noise. If it comes and goes, traffic moves once in hold_s."""
    decisions = _run(chain, [480, 550] * 3, urgent=True, jumped=True)
    assert [d.action for d in decisions] == [Action.PROPOSE] * 6
    decisions = _run(chain, [480, 550] * 6, urgent=True, jumped=True, apart=1.0)
    moved = [i for i, decision in enumerate(decisions) if decision.action is Action.PROPOSE]
    assert moved[:3] == [0, 1, 2] and all(b - a >= 4 for a, b in zip(moved[2:], moved[3:], strict=False))
    assert len(moved) >= 4


def test_a_small_correction_does_not_make_the_next_jump_wait():
    """An answer to a jump was corrected a second ago, and one correction took the other back.

    A reversal more than twice as large goes ahead, and a smaller one waits as before.
    """
    memory = Memory(proposed=_rules(6000), before=_rules(6600), reversal=Reversal(100.0, 600))
    for weight, at, expected in ((9000, 101.0, True), (7100, 101.0, False), (7100, 105.0, True)):
        moved, jumped = weight - 6000, True
        assert confirmed(memory, _rules(weight), moved, True, Thresholds(), at, jumped) is expected


def test_a_service_that_comes_and_goes_is_left_at_once_and_returned_to_when_it_stays(chain):
    """A lost destination is left at once each time.

    Returning to it reverts the last change, so it must persist, even if it brings a new route.
    """
    there, gone = chain({"west": 480.0}), chain({"west": 480.0}, absent=frozenset({("web", "east")}))
    only_west = {WEST: {"west": 10_000}}
    memory = _memory(_rules(7000))
    left = _urgent(gone, memory, only_west, 101.0)
    assert left.action is Action.PROPOSE
    back = _urgent(there, left.memory, _rules(7000), 102.0)
    assert back.rules == {**only_west, EAST: LOCAL} and back.reason == "new routes"
    assert _urgent(there, back.memory, _rules(7000), 103.0).action is Action.WAIT
    assert _urgent(there, back.memory, _rules(7000), 107.0).rules == _rules(7000)


def _urgent(problem, memory, candidate, now):
    return decide(memory, "spillway", candidate, False, problem, None, now, Thresholds(), urgent=True)


def test_a_rule_that_is_denied_by_now_is_withdrawn_at_once(chain):
    """Denials close a route. The candidate has no rule for it, but the rules in force still do."""
    denied = frozenset(("west", WEST.class_id, c) for c in ("west", "east"))
    problem = dataclasses.replace(chain({"east": 100.0}), constraints=Constraints(denied=denied))
    decision = _decide(problem, _memory(_rules(7000)), {EAST: LOCAL}, _in_force(_rules(7000)))
    assert decision.action is Action.PROPOSE and "denied destination" in decision.reason
    assert WEST not in decision.rules


def test_a_clock_that_was_set_back_does_not_stop_renewals(chain):
    """The clock is set back by an hour. Rules are renewed at once, and then on time."""
    problem, memory = chain({"west": 480.0}), _memory(_rules(7000), at=4000.0)
    decision = _decide(problem, memory, _rules(7000), _in_force(_rules(7000)), now=400.0)
    assert decision.action is Action.RENEW and decision.memory.published_at == 400.0
    again = _decide(problem, decision.memory, _rules(7000), _in_force(_rules(7000)), now=401.0)
    assert again.action is Action.WAIT


def test_a_leader_that_takes_over_goes_on_from_the_rules_in_force(chain):
    """PAPA's adjustment survives: it is renewed at once and unchanged.

    It is dropped only if relays no longer hold it, or if it belongs to another policy.
    """
    problem, rulesets = chain({"west": 480.0}), {}
    for cluster in ("west", "east"):
        rulesets[cluster] = Ruleset()
        rulesets[cluster].expires_at.FromSeconds(1000)
    papas = dataclasses.replace(_in_force(_rules(6900), Origin.ORIGIN_PAPA), rulesets=rulesets)
    decision = _decide(problem, Memory(), _rules(7000), papas)
    assert decision.action is Action.RENEW and decision.rules == _rules(6900)
    assert _decide(problem, Memory(), _rules(7000), papas, now=1900.0).rules == _rules(6900), (
        "expired, and held by relays"
    )
    late = 1001.0 + names.VALUE_HOLD_SECONDS
    assert _decide(problem, Memory(), _rules(7000), papas, now=late).rules == _rules(7000)
    assert _decide(problem, Memory(), _rules(7000), papas, policy="local").rules == _rules(7000)


def test_what_a_refused_solve_goes_on_with(chain):
    """The last proposed rules are renewed when due, while they satisfy the constraints."""
    problem, memory = chain({"west": 480.0}), _memory(_rules(7000))

    def left(problem, memory, now):
        return renewal(memory, problem, None, None, now, Thresholds())

    assert left(problem, memory, 120.0).rules == _rules(7000)
    assert left(problem, memory, 101.0).action is Action.WAIT and left(problem, Memory(), 120.0) is None
    local = dataclasses.replace(problem, constraints=Constraints(min_local_share=0.8))
    assert left(local, memory, 120.0) is None


@pytest.mark.parametrize("min_gain", [0.0, 0.001, 0.05, 0.5])
def test_no_change_is_proposed_that_gains_less_than_the_least(chain, min_gain):
    """Over a ramp of load, each later proposal gains at least the minimum.

    The gain is measured by the objective at that time.
    """
    from spillway_optimizer.rulesets.decide import _gain

    demands = [300 + 20 * i for i in range(12)]
    decisions = _run(chain, demands, Thresholds(min_gain=min_gain))
    last = decisions[0].rules
    for demand, decision in zip(demands[1:], decisions[1:], strict=True):
        if decision.action is Action.PROPOSE:
            assert _gain(chain({"west": demand}), last, decision.rules) >= min_gain
            last = decision.rules
    assert min_gain > 0.05 or [d.action for d in decisions].count(Action.PROPOSE) > 1


def test_rules_that_break_a_new_constraint_are_replaced_at_once(chain):
    """A new minimum local share makes the rules in force wrong, although they are cheaper."""
    problem = dataclasses.replace(chain({"west": 480.0}), constraints=Constraints(min_local_share=0.8))
    decision = _decide(problem, _memory(_rules(7000)), _rules(8000), _in_force(_rules(7000)))
    assert decision.action is Action.PROPOSE and "7000 of 10000 stay local" in decision.reason
    held = _in_force(_rules(7000), Origin.ORIGIN_OPERATOR)
    assert _decide(problem, _memory(_rules(7000)), _rules(8000), held).action is Action.WAIT


def test_a_bounded_step_is_reason_enough(chain):
    """If a solution may move 1 % at a time, steps of 1 % are proposed, including the last."""
    thresholds = Thresholds().in_steps(0.01)
    assert thresholds.min_weight_change == 99 and thresholds.min_gain == pytest.approx(1e-5)
    problem, memory = chain({"west": 480.0}), _memory(_rules(9000))
    decision = decide(
        memory, "spillway", _rules(8900), True, problem, _in_force(_rules(9000)), 101.0, thresholds
    )
    assert decision.action is Action.PROPOSE
    assert Thresholds().in_steps(1.0) == Thresholds()

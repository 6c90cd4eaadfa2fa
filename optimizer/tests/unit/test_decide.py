from spillway.v1.ruleset_pb2 import Origin
from spillway_optimizer.decide import Action, Memory, Thresholds, decide
from spillway_optimizer.hot import InForce
from spillway_optimizer.rules import RuleKey

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


def test_a_new_leader_and_a_new_policy_propose_at_once(chain):
    """Nothing to compare with, or another aim: the candidate goes out."""
    problem = chain({"west": 400.0})
    assert _decide(problem, Memory(), _rules(7000), None).action is Action.PROPOSE
    memory = _memory(_rules(7000))
    decision = _decide(
        problem, memory, _rules(7000), _in_force(_rules(7000)), policy="local", minimises=False
    )
    assert decision.action is Action.PROPOSE and decision.memory.policy == "local"


def test_small_changes_wait_and_are_renewed_in_time(chain):
    """1 % of weight changes nothing; after the renewal period the rules in force go out again."""
    problem, memory = chain({"west": 400.0}), _memory(_rules(7000))
    same = _in_force(_rules(7000))
    assert _decide(problem, memory, _rules(7100), same).action is Action.WAIT
    decision = _decide(problem, memory, _rules(7100), same, now=116.0)
    assert decision.action is Action.RENEW and decision.rules == _rules(7000)
    assert decision.memory.own == _rules(7000) and decision.memory.published_at == 116.0


def test_a_large_change_is_proposed_only_when_it_pays(chain):
    """Weights may lie far apart where the objective is flat; a baseline follows its own rule instead."""
    in_force = _in_force(_rules(9000))
    overloaded = chain({"west": 480.0})
    assert _decide(overloaded, _memory(_rules(9000)), _rules(7000), in_force).action is Action.PROPOSE
    # The other way round it would cost more.
    in_force = _in_force(_rules(7000))
    assert _decide(overloaded, _memory(_rules(7000)), _rules(9000), in_force).action is Action.WAIT
    decision = _decide(overloaded, _memory(_rules(7000)), _rules(9000), in_force, minimises=False)
    assert decision.action is Action.PROPOSE


def test_papas_adjustment_is_kept_and_renewed(chain):
    """Rules that PAPA put in force are what a renewal carries, until the solution itself moves."""
    problem, memory = chain({"west": 480.0}), _memory(_rules(7000))
    papas = _in_force(_rules(6500), Origin.ORIGIN_PAPA)
    assert _decide(problem, memory, _rules(7050), papas).action is Action.WAIT
    decision = _decide(problem, memory, _rules(7050), papas, now=120.0)
    assert decision.action is Action.RENEW and decision.rules == _rules(6500)
    renewed = _in_force(_rules(6500))
    later = _decide(problem, decision.memory, _rules(7050), renewed, now=140.0)
    assert later.rules == _rules(6500)
    assert _decide(problem, memory, _rules(4000), papas).action in (Action.PROPOSE, Action.WAIT)


def test_a_publisher_that_moves_in_steps_is_asked_again(chain):
    """When the rules in force are not those proposed, the next period proposes them again."""
    decision = _decide(chain({"west": 480.0}), _memory(_rules(4000)), _rules(4000), _in_force(_rules(7000)))
    assert decision.action is Action.RENEW and decision.rules == _rules(4000)


def test_an_operators_ruleset_is_left_alone(chain):
    """Only the periodic renewal goes on beside it."""
    held = _in_force(_rules(10_000), Origin.ORIGIN_OPERATOR, "operator")
    assert _decide(chain({"west": 480.0}), _memory(_rules(7000)), _rules(7000), held).action is Action.WAIT


def test_a_lost_destination_is_left_at_once(chain):
    """Rules in force lead to a cluster that no longer serves: the solution replaces them."""
    problem = chain({"west": 100.0}, absent=frozenset({("db", "east")}))
    candidate = {EAST: {"west": 10_000}, WEST: {"west": 10_000}}
    decision = _decide(problem, _memory(_rules(9900)), candidate, _in_force(_rules(9900)))
    assert decision.action is Action.PROPOSE and "no longer serve" in decision.reason


def test_new_routes_keep_what_papa_adjusted(chain):
    """A class that appears gets its rule; the others stay as they are in force."""
    problem, memory = (
        chain({"west": 480.0}),
        Memory("spillway", {WEST: _rules(7000)[WEST]}, {WEST: _rules(6500)[WEST]}, 1.0),
    )
    decision = _decide(problem, memory, _rules(7000), _in_force({WEST: _rules(6500)[WEST]}))
    assert decision.action is Action.PROPOSE and decision.rules == _rules(6500)

"""Converts rules to a spillway.v1.Ruleset with predictions and reasons.

Rules are evaluated again and verified on the way.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway.v1.ruleset_pb2 import Destination, InputWindow, Origin, Prediction, Rule, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ruleset as contract
from spillway_contracts import traffic_class

from spillway_optimizer import OptimizerError
from spillway_optimizer.model.model import Window
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.constraints import Route, Shares
from spillway_optimizer.problem.destinations import in_steps
from spillway_optimizer.problem.objective import Evaluation, evaluate, marginal_ms, propagate
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import RuleKey, Rules, Weights, of_pin, routes, to_shares
from spillway_optimizer.problem.solution import Solution
from spillway_optimizer.rulesets.integer_weights import integer_rules, loss
from spillway_optimizer.rulesets.reasons import reason


class UnverifiedError(OptimizerError):
    """A ruleset breaks the contract. It must not leave the process."""


@dataclass(frozen=True)
class Stamp:
    """What identifies a ruleset besides its rules. Times are Unix seconds."""

    ruleset_id: str
    policy: str
    origin: Origin
    window: Window
    created_at: float
    ttl_s: float
    classes: tuple[str, ...]  # every known class
    fencing_token: int = 0  # fencing token of the proposer's lease
    # The version in force when the rules were made. 0: none was. None: the ruleset is no proposal.
    base_version: int | None = None


@dataclass(frozen=True)
class Extracted:
    """A ruleset and what it costs."""

    ruleset: Ruleset
    evaluation: Evaluation  # evaluation of the integer rules
    loss: float  # relative cost of merging and rounding compared with the solution


def from_solution(problem: Problem, solution: Solution, stamp: Stamp, topology: Topology) -> Extracted:
    """Extracts the ruleset of a solution. Raises UnverifiedError if it breaks the contract."""
    problem = in_steps(problem, solution.destinations)
    best = project(problem, solution)
    rules = integer_rules(problem, best)
    ruleset, evaluation = from_rules(problem, rules, stamp, topology)
    return Extracted(ruleset, evaluation, loss(problem, solution, best, rules).total)


def from_rules(
    problem: Problem, rules: Rules, stamp: Stamp, topology: Topology
) -> tuple[Ruleset, Evaluation]:
    """Returns the ruleset of given weights, priced at the problem's demand.

    Raises ProblemError if the rules do not fit the problem, and UnverifiedError if they break the
    contract.
    """
    part = priced(problem, rules)
    return assembled([part], (), problem.constraints.pinned, stamp, topology), part.evaluation


@dataclass(frozen=True)
class Priced:
    """The rules of one application, priced at its demand."""

    rules: tuple[Rule, ...]
    evaluation: Evaluation


def priced(problem: Problem, rules: Rules, policy: str = "") -> Priced:
    """Prices the rules of one application. Raises ProblemError if they do not fit the problem.

    `policy`: the one that made them, if it is not the ruleset's.
    """
    flows, load = propagate(problem.layout, to_shares(problem, rules))
    evaluation = evaluate(problem, flows)
    pricing = _Pricing(problem, flows, evaluation, marginal_ms(problem, load), _edges_of(problem), policy)
    made = [pricing.rule(key, weights) for key, weights in rules.items() if pricing.has(key)]
    return Priced(tuple(made), evaluation)


def assembled(
    parts: Sequence[Priced],
    held: Iterable[Rule],
    pinned: Mapping[Route, Shares],
    stamp: Stamp,
    topology: Topology,
) -> Ruleset:
    """Assembles one ruleset from several applications and from `held` rules.

    Held rules are sent unchanged, and the prediction does not cover them. Pins of routes without
    calls are included too, because the publisher would add them. Raises UnverifiedError if the
    ruleset breaks the contract.
    """
    held = tuple(held)
    classes = sorted({*stamp.classes, *(_key(rule).class_id for rule in held)})
    rules = [*(rule for part in parts for rule in part.rules), *held]
    known = {_key(rule) for rule in rules}
    rules += [_idle_pin(RuleKey(*key), pin) for key, pin in pinned.items() if key not in known]
    rules.sort(key=_key)
    ruleset = Ruleset(
        id=stamp.ruleset_id,
        origin=stamp.origin,
        fencing_token=stamp.fencing_token,
        base_version=stamp.base_version,
        policy=stamp.policy,
        input_window=InputWindow(id=stamp.window.id),
        predicted=predicted([part.evaluation for part in parts]),
        rules=rules,
        traffic_classes=[traffic_class.parse(class_id) for class_id in classes],
    )
    ruleset.input_window.start.FromMilliseconds(round(stamp.window.start * 1000))
    ruleset.input_window.end.FromMilliseconds(round(stamp.window.end * 1000))
    ruleset.created_at.FromMilliseconds(round(stamp.created_at * 1000))
    ruleset.expires_at.FromMilliseconds(round((stamp.created_at + stamp.ttl_s) * 1000))
    if problems := contract.check(ruleset, topology):
        raise UnverifiedError("; ".join(problems))
    return ruleset


def predicted(evaluations: Collection[Evaluation]) -> Prediction:
    """Returns the prediction for all applications together: means over all entry requests."""
    demand_rps = sum(e.demand_rps for e in evaluations)
    compute_ms = sum(e.compute_ms_rps for e in evaluations) / demand_rps if demand_rps else 0.0
    network_ms = sum(e.network_ms_rps for e in evaluations) / demand_rps if demand_rps else 0.0
    return Prediction(
        mean_latency_ms=compute_ms + network_ms,
        compute_ms=compute_ms,
        network_ms=network_ms,
        egress_usd_per_hour=sum(e.egress_usd_per_hour for e in evaluations),
        demand_rps=demand_rps,
    )


def _key(rule: Rule) -> RuleKey:
    return RuleKey(rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class))


@dataclass(frozen=True)
class _Pricing:
    """Prices single rules of one problem at one routing."""

    problem: Problem
    flows: Floats
    evaluation: Evaluation
    marginal: Floats  # [K, C]
    edges: Mapping[tuple[str, str], list[int]]  # by source service and callee class
    policy: str

    def has(self, key: RuleKey) -> bool:
        """Returns whether the problem has this route.

        Old rules may belong to classes that have no demand now. They have no prediction and lapse.
        """
        return key[1:] in self.edges and key.source_cluster in self.problem.clusters

    def rule(self, key: RuleKey, weights: Weights) -> Rule:
        layout = self.problem.layout
        edges, i = self.edges[key[1:]], layout.clusters.index(key.source_cluster)
        k = int(layout.edge_target[edges[0]])
        destinations = []
        for cluster, weight in sorted(weights.items()):
            j = layout.clusters.index(cluster)
            destinations.append(
                Destination(
                    cluster=cluster,
                    weight=weight,
                    predicted_compute_ms=float(self.evaluation.latency_ms[k, j]),
                    predicted_network_ms=float(layout.rtt[i, j]),
                )
            )
        calls = self.flows[edges, i].sum(axis=0)
        return Rule(
            source_cluster=key.source_cluster,
            source_service=key.source_service,
            traffic_class=traffic_class.parse(key.class_id),
            destinations=destinations,
            reason=reason(self.problem, edges[0], i, calls, weights, self.marginal),
            policy=self.policy,
        )


def _edges_of(problem: Problem) -> dict[tuple[str, str], list[int]]:
    layout = problem.layout
    return {(layout.services[s], layout.classes[k]): edges for (s, k), edges in routes(problem).items()}


def _idle_pin(key: RuleKey, shares: Mapping[str, float]) -> Rule:
    """Returns the rule of a pinned route that has no calls now."""
    return Rule(
        source_cluster=key.source_cluster,
        source_service=key.source_service,
        traffic_class=traffic_class.parse(key.class_id),
        destinations=[Destination(cluster=c, weight=w) for c, w in of_pin(shares).items()],
        reason="pins: fixed by the operator; no such calls are known now",
    )

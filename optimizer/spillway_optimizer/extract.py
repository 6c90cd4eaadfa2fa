"""Rules -> spillway.v1.Ruleset with predictions and reasons, re-evaluated and verified."""

from dataclasses import dataclass

import numpy as np
from spillway.v1.ruleset_pb2 import Destination, InputWindow, Origin, Prediction, Rule, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ruleset as contract
from spillway_contracts import traffic_class

from spillway_optimizer import OptimizerError
from spillway_optimizer.model import Window
from spillway_optimizer.objective import Evaluation, evaluate, marginal_ms, propagate
from spillway_optimizer.problem import Problem
from spillway_optimizer.reasons import reason
from spillway_optimizer.rules import RuleKey, Rules, of_shares, to_shares
from spillway_optimizer.solution import Solution


class UnverifiedError(OptimizerError):
    """A ruleset that breaks the contract; it must not leave the process."""


@dataclass(frozen=True)
class Stamp:
    """What identifies a ruleset besides its rules; times are Unix seconds."""

    ruleset_id: str
    policy: str
    origin: Origin
    window: Window
    created_at: float
    ttl_s: float
    classes: tuple[str, ...]  # every known class


@dataclass(frozen=True)
class Extracted:
    ruleset: Ruleset
    evaluation: Evaluation  # of the integer rules
    loss: float  # relative: what merging and rounding cost against the solution


def from_solution(problem: Problem, solution: Solution, stamp: Stamp, topology: Topology) -> Extracted:
    """Raises UnverifiedError when the outcome breaks the contract."""
    rules = of_shares(problem, solution.shares, solution.flows)
    ruleset, evaluation = from_rules(problem, rules, stamp, topology)
    ideal = solution.evaluation.usd_per_hour
    loss = (evaluation.usd_per_hour - ideal) / ideal if ideal > 0 else 0.0
    return Extracted(ruleset, evaluation, loss)


def from_rules(
    problem: Problem, rules: Rules, stamp: Stamp, topology: Topology
) -> tuple[Ruleset, Evaluation]:
    """The ruleset of given weights, priced at the problem's demand. Raises ProblemError when the rules do
    not fit the problem, UnverifiedError when they break the contract."""
    flows, load = propagate(problem.layout, to_shares(problem, rules))
    evaluation = evaluate(problem, flows)
    pricing = _Pricing(problem, flows, evaluation, marginal_ms(problem, load))
    ruleset = Ruleset(
        id=stamp.ruleset_id,
        origin=stamp.origin,
        policy=stamp.policy,
        input_window=InputWindow(id=stamp.window.id),
        predicted=Prediction(
            mean_latency_ms=evaluation.mean_latency_ms,
            compute_ms=evaluation.compute_ms,
            network_ms=evaluation.network_ms,
            egress_usd_per_hour=evaluation.egress_usd_per_hour,
            demand_rps=evaluation.demand_rps,
        ),
        rules=[pricing.rule(key, weights) for key, weights in rules.items() if pricing.has(key)],
        traffic_classes=[traffic_class.parse(class_id) for class_id in stamp.classes],
    )
    ruleset.input_window.start.FromMilliseconds(round(stamp.window.start * 1000))
    ruleset.input_window.end.FromMilliseconds(round(stamp.window.end * 1000))
    ruleset.created_at.FromMilliseconds(round(stamp.created_at * 1000))
    ruleset.expires_at.FromMilliseconds(round((stamp.created_at + stamp.ttl_s) * 1000))
    if problems := contract.check(ruleset, topology):
        raise UnverifiedError("; ".join(problems))
    return ruleset, evaluation


@dataclass(frozen=True)
class _Pricing:
    problem: Problem
    flows: np.ndarray
    evaluation: Evaluation
    marginal: np.ndarray  # [K, C]

    def has(self, key: RuleKey) -> bool:
        """Old rules may be of classes that have no demand now; they have no prediction and lapse."""
        return bool(self._edges(key)) and key.source_cluster in self.problem.clusters

    def rule(self, key: RuleKey, weights) -> Rule:
        layout = self.problem.layout
        edges, i = self._edges(key), layout.clusters.index(key.source_cluster)
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
        )

    def _edges(self, key: RuleKey) -> list[int]:
        layout = self.problem.layout
        return [
            e
            for e, (source, target) in enumerate(zip(layout.edge_source, layout.edge_target, strict=True))
            if layout.classes[target] == key.class_id
            and layout.services[layout.class_service[source]] == key.source_service
        ]

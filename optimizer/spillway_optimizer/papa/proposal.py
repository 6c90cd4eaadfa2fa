"""The rules in force with one rule's weights changed, as a proposal. Pure."""

from collections.abc import Mapping

from spillway.v1.ruleset_pb2 import Destination, Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ruleset as contract
from spillway_contracts import traffic_class

from spillway_optimizer.extract import UnverifiedError
from spillway_optimizer.hot import InForce
from spillway_optimizer.rules import RuleKey


def adjusted(
    in_force: InForce,
    key: RuleKey,
    weights: Mapping[str, int],
    why: str,
    ruleset_id: str,
    now: float,
    ttl_s: float,
    topology: Topology,
) -> Ruleset:
    """Predictions stay the optimizer's: they are what PAPA measures against. Raises UnverifiedError when
    the outcome breaks the contract, as it does when `key` is no rule in force."""
    newest = max(in_force.rulesets.values(), key=lambda r: r.version)
    proposal = Ruleset(
        id=ruleset_id,
        origin=Origin.ORIGIN_PAPA,
        policy=in_force.policy,
        input_window=newest.input_window,
        predicted=newest.predicted,
    )
    proposal.created_at.FromMilliseconds(round(now * 1000))
    proposal.expires_at.FromMilliseconds(round((now + ttl_s) * 1000))
    classes, changed = {}, False
    for _, ruleset in sorted(in_force.rulesets.items()):
        classes |= {traffic_class.format_id(c): c for c in ruleset.traffic_classes}
        for rule in ruleset.rules:
            copy = proposal.rules.add()
            copy.CopyFrom(rule)
            if key == (rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class)):
                _reweigh(copy, weights, why)
                changed = True
    proposal.traffic_classes.extend(classes[class_id] for class_id in sorted(classes))
    problems = contract.check(proposal, topology) + ([] if changed else [f"no rule in force for {key}"])
    if problems:
        raise UnverifiedError("; ".join(problems))
    return proposal


def _reweigh(rule, weights: Mapping[str, int], why: str) -> None:
    known = {d.cluster: d for d in rule.destinations}
    changed = []
    for cluster, weight in sorted(weights.items()):
        # A destination whose weight fell to 0 comes back without a prediction when a step is rolled back.
        d = Destination(cluster=cluster)
        d.CopyFrom(known.get(cluster, d))
        d.weight = weight
        changed.append(d)
    del rule.destinations[:]
    rule.destinations.extend(changed)
    rule.reason = why

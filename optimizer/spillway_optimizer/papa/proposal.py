"""A proposal that changes one rule's weights, as a part of the ruleset in force. Pure."""

from collections.abc import Mapping

from spillway.v1.ruleset_pb2 import Destination, Origin, Rule, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ruleset as contract
from spillway_contracts import traffic_class

from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.rulesets.assemble import UnverifiedError


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
    """Returns a partial proposal with this rule only, based on the version that was read.

    The publisher keeps everything else in force, including the expiry. Predictions remain the
    optimizer's, because PAPA measures against them. Raises UnverifiedError if the result breaks the
    contract, or if no rule for `key` is in force.
    """
    ruleset = in_force.rulesets.get(key.source_cluster, Ruleset())
    found = [rule for rule in ruleset.rules if key == _key(rule)]
    if not found:
        raise UnverifiedError(f"no rule in force for {key}")
    proposal = Ruleset(
        id=ruleset_id,
        origin=Origin.ORIGIN_PAPA,
        partial=True,
        base_version=ruleset.version,
        rules=[_reweighed(found[0], weights, why)],
        traffic_classes=[found[0].traffic_class],
    )
    proposal.created_at.FromMilliseconds(round(now * 1000))
    proposal.expires_at.FromMilliseconds(round((now + ttl_s) * 1000))
    # The publisher takes policy and input window from the ruleset in force.
    whole = Ruleset(policy=in_force.policy, input_window=ruleset.input_window)
    whole.MergeFrom(proposal)
    if problems := contract.check(whole, topology):
        raise UnverifiedError("; ".join(problems))
    return proposal


def _key(rule: Rule) -> RuleKey:
    return RuleKey(rule.source_cluster, rule.source_service, traffic_class.format_id(rule.traffic_class))


def _reweighed(rule: Rule, weights: Mapping[str, int], why: str) -> Rule:
    result, known = Rule(), {d.cluster: d for d in rule.destinations}
    result.CopyFrom(rule)
    del result.destinations[:]
    for cluster, weight in sorted(weights.items()):
        # A destination whose weight fell to 0 returns without a prediction when a step is rolled
        # back.
        d = result.destinations.add()
        d.CopyFrom(known.get(cluster, Destination(cluster=cluster)))
        d.weight = weight
    result.reason = why
    return result

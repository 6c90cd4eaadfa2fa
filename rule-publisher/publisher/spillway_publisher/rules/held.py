"""The rules that relays route by now, including expired rules that they still hold. Pure.

Relays hold the rules of an expired ruleset with decreasing weights.
"""

from collections.abc import Mapping

from spillway.v1.ruleset_pb2 import Destination, Rule, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import denials as contract
from spillway_contracts import hold, traffic_class
from spillway_contracts.bases import RuleKey, positive

from spillway_publisher.rules.weights import TOTAL


def rules(in_force: Mapping[str, Ruleset], topology: Topology, now_ns: int) -> list[Rule]:
    """Returns the rules that relays route by, in order of the rulesets' versions.

    Rules that relays no longer hold are left out. Each cluster's ruleset expires independently.
    Relays are assumed to hold for names.VALUE_HOLD_SECONDS, their default.
    """
    made: list[Rule] = []
    for ruleset in sorted(in_force.values(), key=lambda ruleset: ruleset.version):
        age_ms = (now_ns - ruleset.expires_at.ToNanoseconds()) // 1_000_000
        if age_ms < 0:
            made += ruleset.rules
            continue
        for rule in ruleset.rules:
            nearest = _nearest(rule, ruleset, topology)
            weights = hold.routed(positive(rule), nearest, rule.source_cluster, rule.source_service, age_ms)
            if weights:
                made.append(rule if weights == positive(rule) else reweighted(rule, weights))
    return made


def routed(rule: Rule | None, key: RuleKey) -> Mapping[str, int]:
    """Returns the rule's weights above 0. Without any, relays serve local-first."""
    return positive(rule) or {key[0]: TOTAL}


def reweighted(rule: Rule, weights: Mapping[str, int]) -> Rule:
    """Returns a copy of the rule with these weights.

    Clusters that it had keep their predictions.
    """
    known = {destination.cluster: destination for destination in rule.destinations}
    made = Rule()
    made.CopyFrom(rule)
    del made.destinations[:]
    for cluster, weight in weights.items():
        destination = Destination()
        destination.CopyFrom(known.get(cluster, destination))
        destination.cluster, destination.weight = cluster, weight
        made.destinations.append(destination)
    return made


def placed(topology: Topology, service: str) -> set[str]:
    """Returns the clusters in which the topology places the service."""
    return {p.cluster for s in topology.services if s.name == service for p in s.placements}


def _nearest(rule: Rule, ruleset: Ruleset, topology: Topology) -> str | None:
    """Returns the cluster to which relays move the shares that other destinations lose.

    It is the source cluster, else the one with the shortest round trip; None when unknown. The
    clusters with endpoints are taken from the topology and the rule.
    """
    source, service = rule.source_cluster, rule.traffic_class.service
    rtt_ms = {
        link.destination_cluster: link.rtt_ms for link in topology.links if link.source_cluster == source
    }
    rtt_ms[source] = 0.0
    every, own_class = (source, ""), (source, traffic_class.format_id(rule.traffic_class))
    denied = {c for d in ruleset.denials if contract.key(d) in (every, own_class) for c in d.clusters}
    candidates = ((placed(topology, service) | positive(rule).keys()) & rtt_ms.keys()) - denied
    return min(candidates, key=lambda c: (c != source, rtt_ms[c], c), default=None)

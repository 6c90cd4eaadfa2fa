"""A rule as a JSON value, as commands print it. Pure."""

from typing import Any

from spillway.v1.ruleset_pb2 import Rule
from spillway_contracts import traffic_class


def as_json(rule: Rule) -> dict[str, Any]:
    """Returns the rule's route, its weights of 10 000 by destination, and its reason."""
    return {
        "source_cluster": rule.source_cluster,
        "source_service": rule.source_service,
        "class": traffic_class.format_id(rule.traffic_class),
        "weights": {d.cluster: d.weight for d in rule.destinations},
        "reason": rule.reason,
    }

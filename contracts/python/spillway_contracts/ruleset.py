"""The requirements on every ruleset, whoever made it."""

from spillway.v1.ruleset_pb2 import Ruleset
from spillway.v1.topology_pb2 import Topology

from spillway_contracts import ContractError, denials, names, traffic_class


def check(ruleset: Ruleset, topology: Topology) -> list[str]:
    """Returns each breach of the contract with its key, the value and what is allowed."""
    clusters = {cluster.name for cluster in topology.clusters}
    links = {(link.source_cluster, link.destination_cluster) for link in topology.links}
    allowed = ", ".join(sorted(clusters))
    problems = []
    for key in ("id", "policy"):
        if not getattr(ruleset, key):
            problems.append(f"{key}: empty")
    if not ruleset.input_window.id:
        problems.append("input_window.id: empty")
    try:
        if ruleset.expires_at.ToNanoseconds() <= ruleset.created_at.ToNanoseconds():
            problems.append("expires_at: must be later than created_at")
    except ValueError as error:
        problems.append(f"created_at, expires_at: {error}")
    seen = set()
    for i, rule in enumerate(ruleset.rules):
        class_id = traffic_class.format_id(rule.traffic_class)
        key = f"rules[{i}]"
        try:
            traffic_class.parse(class_id)
        except ContractError as error:
            problems.append(f"{key}.traffic_class: {error}")
        if rule.source_cluster not in clusters:
            problems.append(
                f"{key}.source_cluster: unknown cluster {rule.source_cluster!r}; clusters: {allowed}"
            )
        if not rule.source_service:
            problems.append(f"{key}.source_service: empty")
        identity = (rule.source_cluster, rule.source_service, class_id)
        if identity in seen:
            problems.append(f"{key}: a second rule for {identity}")
        seen.add(identity)
        destinations = [d.cluster for d in rule.destinations]
        if len(set(destinations)) != len(destinations):
            problems.append(f"{key}.destinations: a cluster is listed twice: {destinations}")
        for j, destination in enumerate(destinations):
            if destination not in clusters:
                problems.append(
                    f"{key}.destinations[{j}].cluster: unknown cluster {destination!r}; clusters: {allowed}"
                )
            elif destination != rule.source_cluster and (rule.source_cluster, destination) not in links:
                problems.append(
                    f"{key}.destinations[{j}]: no link {rule.source_cluster!r} to {destination!r}"
                )
        total = sum(d.weight for d in rule.destinations)
        if total != names.VALUE_WEIGHT_TOTAL:
            problems.append(f"{key}.destinations: weights sum to {total}; must be {names.VALUE_WEIGHT_TOTAL}")
    return problems + denials.check(ruleset.denials, clusters)

"""The requirements on the denials of a ruleset, and their order."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from spillway.v1.ruleset_pb2 import Denial

from spillway_contracts import ContractError, names, traffic_class

MOST = names.VALUE_DENIALS_PER_CLUSTER


def key(denial: Denial) -> tuple[str, str]:
    """Returns the sort key of a denial: source cluster and class id ("": every class)."""
    every = not denial.HasField("traffic_class")
    return denial.source_cluster, "" if every else traffic_class.format_id(denial.traffic_class)


def check(denials: Sequence[Denial], clusters: Collection[str]) -> list[str]:
    """Returns each breach of the contract with its key, the value and what is allowed."""
    allowed = ", ".join(sorted(clusters))
    problems = []
    for i, denial in enumerate(denials):
        if denial.source_cluster not in clusters:
            problems.append(
                f"denials[{i}].source_cluster: unknown cluster {denial.source_cluster!r}; clusters: {allowed}"
            )
        problems += [f"denials[{i}].{problem}" for problem in _problems(denial, clusters, allowed)]
    return problems + _order_problems([key(denial) for denial in denials])


def _problems(denial: Denial, clusters: Collection[str], allowed: str) -> Iterable[str]:
    _, class_id = key(denial)
    if denial.HasField("traffic_class"):
        try:
            traffic_class.parse(class_id)
        except ContractError as error:
            yield f"traffic_class: {error}"
    if not denial.clusters:
        yield "clusters: empty; at least one must be named"
    if list(denial.clusters) != sorted(set(denial.clusters)):
        yield f"clusters: {list(denial.clusters)}; must be in order of name, each once"
    for j, name in enumerate(denial.clusters):
        if name not in clusters:
            yield f"clusters[{j}]: unknown cluster {name!r}; clusters: {allowed}"


def _order_problems(keys: list[tuple[str, str]]) -> list[str]:
    problems = []
    if keys != sorted(set(keys)):
        problems.append("denials: must be in order of (source_cluster, class id), at most one of each")
    for source, count in sorted(Counter(source for source, _ in keys).items()):
        if count > MOST:
            problems.append(f"denials: {count} of source cluster {source!r}; must be at most {MOST}")
    return problems

"""Converts between a ruleset of all clusters and its slices, one per source cluster. Pure.

A slice is the value of one key of the bucket.
"""

from collections.abc import Collection, Iterable

from spillway.v1.ruleset_pb2 import Ruleset


def cut(ruleset: Ruleset, clusters: Collection[str], version: int) -> dict[str, Ruleset]:
    """Returns by cluster, in order of name, the slice with that source cluster's rules and denials.

    All slices have the given version; everything else is copied. A ruleset on trial is cut too. A
    cluster without rules gets a slice too. Its relay then serves local-first under the new version.
    """
    return {cluster: _slice(ruleset, cluster, version) for cluster in sorted(clusters)}


def _slice(ruleset: Ruleset, cluster: str, version: int) -> Ruleset:
    part = Ruleset()
    part.CopyFrom(ruleset)
    part.version = version
    del part.rules[:]
    part.rules.extend(rule for rule in ruleset.rules if rule.source_cluster == cluster)
    del part.denials[:]
    part.denials.extend(denial for denial in ruleset.denials if denial.source_cluster == cluster)
    if ruleset.HasField("canary"):
        part.canary.ruleset.CopyFrom(_slice(ruleset.canary.ruleset, cluster, version))
    return part


def join(parts: Iterable[Ruleset]) -> Ruleset:
    """Returns the ruleset that slices of one version were cut from.

    Rules and denials are in the order of the parts.
    """
    whole, tried = Ruleset(), []
    for part in parts:
        tried += [part.canary.ruleset] if part.HasField("canary") else []
        rules, denials = [*whole.rules, *part.rules], [*whole.denials, *part.denials]
        whole.CopyFrom(part)
        del whole.rules[:], whole.denials[:]
        whole.rules.extend(rules)
        whole.denials.extend(denials)
    if whole.HasField("canary"):
        whole.canary.ruleset.CopyFrom(join(tried))
    return whole

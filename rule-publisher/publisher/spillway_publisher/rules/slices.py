"""A ruleset of all clusters <-> the values of the bucket's keys, one per source cluster. Pure."""

from collections.abc import Collection, Iterable

from spillway.v1.ruleset_pb2 import Ruleset


def cut(ruleset: Ruleset, clusters: Collection[str], version: int) -> dict[str, Ruleset]:
    """By cluster, in order of name: that source cluster's rules and denials, everything else the same, this version.

    A cluster without rules has a slice too: its relay then serves local-first under the new version.
    """
    slices = {}
    for cluster in sorted(clusters):
        part = Ruleset()
        part.CopyFrom(ruleset)
        part.version = version
        del part.rules[:]
        part.rules.extend(rule for rule in ruleset.rules if rule.source_cluster == cluster)
        del part.denials[:]
        part.denials.extend(denial for denial in ruleset.denials if denial.source_cluster == cluster)
        slices[cluster] = part
    return slices


def join(parts: Iterable[Ruleset]) -> Ruleset:
    """The ruleset that slices of one version were cut from (rules and denials in order of the parts)."""
    whole = Ruleset()
    for part in parts:
        rules, denials = [*whole.rules, *part.rules], [*whole.denials, *part.denials]
        whole.CopyFrom(part)
        del whole.rules[:], whole.denials[:]
        whole.rules.extend(rules)
        whole.denials.extend(denials)
    return whole

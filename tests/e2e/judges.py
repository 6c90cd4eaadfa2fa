"""Judges of a fault's samples. Pure: each function returns its findings in words."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from spillway_contracts import names
from watching import Rule, Sample

# Weights sum to 10 000. A rise above RISE towards an unknown cluster is no noise, so a step of
# PAPA, which is 500, is a finding. A weight above MUCH has collapsed when less than KEPT of it is
# left.
RISE, KEPT, MUCH = 100, 1 / 3, 500
_DECIDED_S = 3.0  # from reading the boards to the resulting ruleset
_OLD_S = 15.0  # older boards say nothing about the present
# Other clusters' lies have changed a cluster's demand if it rose or fell by more than the factor
# _CHANGED. The change must also exceed _DEVIATIONS standard deviations of the count in a window of
# _WINDOW_S seconds.
_CHANGED, _DEVIATIONS, _WINDOW_S = 2.0, 4.0, 5.0
# Where the clock of Redis is set forward, all keys that expire are gone until they are written
# again: placements every 2 s (SPILLWAY_PUBLISHER_REFRESH_S).
_SET_S, _WRITTEN_S = 1.0, 4.0


def rising(
    before: list[Sample], during: list[Sample], unknown: Iterable[tuple[str, str]], until: float
) -> list[str]:
    """Finds weights towards unknown clusters that rise above every earlier value.

    `unknown` lists (service or "" for all, cluster). They are unknown until `until`, by the
    samples' clock, and after that while the boards say so or are old. A weight that rose while the
    cluster was known, or by a decision just before, may stay when it is unknown again.
    """
    findings: dict[tuple[Rule, str], str] = {}
    most: dict[tuple[Rule, str], int] = {}
    # since when it is unknown; infinity while it is known
    since: dict[tuple[Rule, str], float] = {}
    for sample in before:
        for rule, weights in sample.weights.items():
            for cluster, weight in weights.items():
                most[rule, cluster] = max(most.get((rule, cluster), 0), weight)
    for sample in during:
        for rule, weights in sample.weights.items():
            called = rule[2].partition(" ")[0]
            for cluster in {c for service, c in unknown if service in ("", called)}:
                key, weight = (rule, cluster), weights.get(cluster, 0)
                if sample.at > until and not _unknown(sample, called, cluster):
                    since[key] = math.inf
                    most[key] = max(most.get(key, 0), weight)
                    continue
                since[key] = min(since.get(key, -math.inf), sample.at)
                if sample.at > until and sample.at - since[key] <= _DECIDED_S:
                    most[key] = max(most.get(key, 0), weight)
                elif weight > most.get(key, 0) + RISE:
                    findings[key] = f"{_name(rule)}: {most.get(key, 0)} → {weight} towards {cluster}, unknown"
    return list(findings.values())


def _unknown(sample: Sample, service: str, cluster: str) -> bool:
    found = sample.unknown.get(cluster, {})
    whole = names.VALUE_WHOLE_CLUSTER in found
    return whole or service in found or sample.age_s.get(cluster, 0.0) > _OLD_S


def collapsing(
    before: list[Sample],
    during: list[Sample],
    lost: Iterable[str] = (),
    left: Iterable[str] = (),
    liars: Iterable[str] = (),
) -> list[str]:
    """Finds rules that disappear, and weights that fall below a share of their earlier minimum.

    A cluster in `liars`, which reports with its own credential that it serves more than it does,
    may attract requests.
    """
    findings = {}
    common = set.intersection(*(set(s.weights) for s in before)) if before else set()
    for rule in {r for r in common if r[0] not in lost}:
        least = {c: min(s.weights[rule].get(c, 0) for s in before) for c in before[0].weights[rule]}
        for sample in during:
            now = sample.weights.get(rule, {})
            for cluster, weight in least.items():
                gone = weight > MUCH and now.get(cluster, 0) < weight * KEPT
                boast = sum(now.get(c, 0) - least.get(c, 0) for c in liars if c != cluster)
                drawn = boast >= weight - now.get(cluster, 0)
                if gone and not drawn and cluster not in {*lost, *left}:
                    findings[rule, cluster] = (
                        f"{_name(rule)}: {weight} → {now.get(cluster, 0)} towards {cluster}"
                    )
    return list(findings.values())


def changing(before: list[Sample], during: list[Sample], services: Iterable[str]) -> list[str]:
    """Finds rules of these callers whose weights have changed."""
    if not before:
        return []
    last = {r: w for r, w in before[-1].weights.items() if r[1] in set(services)}
    findings = {} if last else {None: f"no rules of {', '.join(services)}"}
    for sample in during:
        for rule, weights in last.items():
            if sample.weights.get(rule) != weights:
                findings[rule] = (
                    f"{_name(rule)}: {dict(weights)} → {sample.weights.get(rule)}, of another application"
                )
    return list(findings.values())


def vanishing(
    expected: Mapping[str, Counter[str]],
    during: list[Sample],
    always: bool,
    before: list[Sample] | None = None,
) -> list[str]:
    """Finds live Envoys that are not placed.

    An absent key is a finding only if `always` is set, and the clock was not set just before. The
    samples `before` may show that, and are not judged.
    """
    findings = {}
    for cluster, envoys in expected.items():
        set_at, clock_s = _set_at(before or [], -math.inf, None)
        for sample in during:
            set_at, clock_s = _set_at([sample], set_at, clock_s)
            placed = sample.placed[cluster]
            if placed is None and always and sample.at > set_at + _WRITTEN_S:
                findings[cluster] = f"{cluster}: no placement"
            if placed is not None and placed != envoys:
                findings[cluster] = f"{cluster}: placement {placed}, expected {dict(envoys)}"
    return list(findings.values())


def _set_at(samples: list[Sample], set_at: float, clock_s: float | None) -> tuple[float, float | None]:
    """Returns when the clock was set last, and the newest sample's `clock_s`."""
    for sample in samples:
        if clock_s is not None and abs(sample.clock_s - clock_s) > _SET_S:
            set_at = sample.at
        clock_s = sample.clock_s
    return set_at, clock_s


def misled(before: list[Sample], during: list[Sample], liars: Iterable[str]) -> list[str]:
    """Finds demand of clusters that do not lie and that has changed."""
    findings = {}
    for sample in during:
        for cluster, demand in sample.demand.items():
            for class_id, rps in demand.items() if cluster not in liars else ():
                was = [s.demand[cluster][class_id] for s in before if class_id in s.demand.get(cluster, {})]
                if not was or not _is_noise(rps, min(was), max(was)):
                    findings[cluster, class_id] = (
                        f"{cluster} {class_id}: demand {max(was, default=0.0):.1f} → {rps:.1f} by another's lie"
                    )
    return list(findings.values())


def _is_noise(rps: float, least: float, most: float) -> bool:
    if least / _CHANGED <= rps <= most * _CHANGED:
        return True
    return max(least - rps, rps - most) <= _DEVIATIONS * math.sqrt(most / _WINDOW_S)


def missing(sample: Sample, expected: Mapping[str, Counter[str]]) -> list[str]:
    """Returns what is not back.

    These are services that are unknown or without recent boards, and Envoys that are not placed.
    """
    unknown = [
        f"{c}: {s!r} unknown: {why}" for c, found in sample.unknown.items() for s, why in found.items()
    ]
    unsaid = [
        f"{c}: nothing says that {s!r} is known"
        for c, services in expected.items()
        for s in sorted(services)
        if s not in sample.unknown.get(c, {}) and sample.known_s.get(c, {}).get(s, math.inf) > _OLD_S
    ]
    return unknown + unsaid + vanishing(expected, [sample], always=True)


def band(before: list[Sample], during: list[Sample]) -> str:
    """Describes how far weights moved.

    It names the largest rise above every earlier value, and the smallest share that was left of a
    large weight.
    """
    rise, kept = (0, "none"), (math.inf, "none")
    rules = set.intersection(*(set(s.weights) for s in [*before, *during])) if before and during else set()
    for rule in rules:
        for cluster in set().union(*(s.weights[rule] for s in [*before, *during])):
            was = [s.weights[rule].get(cluster, 0) for s in before]
            now = [s.weights[rule].get(cluster, 0) for s in during]
            where = f"{_name(rule)} at {cluster}, {min(was)}..{max(was)} → {min(now)}..{max(now)}"
            rise = max(rise, (max(now) - max(was), where))
            if min(was) > MUCH:
                kept = min(kept, (min(now) / min(was), where))
    return f"most {rise[0]:+d} ({rise[1]}), least {kept[0]:.0%} ({kept[1]})"


def reasons(during: list[Sample]) -> str:
    """Returns the names that the boards reported as unknown."""
    found = {f"{cluster}/{name}" for s in during for cluster, names in s.unknown.items() for name in names}
    return ", ".join(sorted(found)) or "nothing"


def clock(before: list[Sample], during: list[Sample]) -> str:
    """Describes by how much the clock was set."""
    found = [s.clock_s for s in [*before[-1:], *during]]
    seconds = found[-1] - found[0] if found else 0.0
    return f"the clock was set by {seconds:+.1f} s" if abs(seconds) > _SET_S else ""


def _name(rule: Rule) -> str:
    return f"{rule[0]} {rule[1]} → {rule[2]}"

"""Describes a service's classes: modes, what would split them, nearest class, reason for each."""

from dataclasses import replace

import numpy as np

from spillway_streams.batches.arrays import Ints, Records
from spillway_streams.classes import findings as words
from spillway_streams.classes import merge, modes, pattern, rules, split
from spillway_streams.classes.compare import Sampled
from spillway_streams.classes.findings import Finding
from spillway_streams.classes.options import Options
from spillway_streams.classes.view import Key, View

_NAMED = ("source_service", "source_cluster")
_NUMERIC = ("request_bytes", "response_bytes")
_MOST_CALLEES = 20


def look(view: View, tested: list[Key], options: Options) -> None:
    """Computes the modes of each tested class."""
    for key in tested:
        sampled = view.samples[key]
        view.modes[key] = modes.find(sampled.ms, sampled.stratum, sampled.weight, options)


def findings(view: View, nearest: dict[Key, merge.Nearest], tests: int, options: Options) -> list[Finding]:
    """Returns one finding for each class of the service, in order.

    Findings use p-values corrected for `tests` comparisons.
    """
    keys = sorted(nearest)
    p_values = merge.holm([nearest[key].comparison.p_value for key in keys], tests)
    child_p_values = merge.holm([nearest[key].comparison.child_p_value for key in keys], tests)
    nearest = {
        key: replace(
            nearest[key], comparison=replace(nearest[key].comparison, p_value=p, child_p_value=child_p)
        )
        for key, p, child_p in zip(keys, p_values, child_p_values, strict=True)
    }
    found = []
    for key in sorted(view.live):
        finding = _basis(view, key)
        if key in nearest:
            finding = words.with_nearest(finding, nearest[key], _id(view, (key[0], nearest[key].template)))
        if key in view.modes:
            seen = view.modes[key]
            finding = words.with_modes(
                finding, seen, _split(view, key, seen, options) if seen.clear else split.Split()
            )
        found.append(_judged(view, key, finding, nearest.get(key), options))
    return found


def _id(view: View, key: Key) -> str:
    return f"{view.service} {key[0]} {key[1]}"


def _basis(view: View, key: Key) -> Finding:
    kept = view.live[key]
    sampled = view.samples.get(key)
    p50, p99 = (0.0, 0.0) if sampled is None or not len(sampled.ms) else _quantiles(sampled)
    return Finding(
        view.now_ms, view.service, _id(view, key), "", "", kept.requests, len(sampled.ms) if sampled else 0,
        kept.failed / kept.requests if kept.requests else 0.0, p50, p99,
    )  # fmt: skip


def _quantiles(sampled: Sampled) -> list[float]:
    """Returns median and 99th percentile of the requests that the samples stand for."""
    found: list[float] = np.quantile(
        sampled.ms, (0.5, 0.99), weights=sampled.weight, method="inverted_cdf"
    ).tolist()
    return found


def _judged(view: View, key: Key, finding: Finding, near: merge.Nearest | None, options: Options) -> Finding:
    verdict, reason = _verdict(view, key, finding, near, options)
    return replace(finding, verdict=verdict, reason=reason)


def _verdict(
    view: View, key: Key, finding: Finding, near: merge.Nearest | None, options: Options
) -> tuple[str, str]:
    if key[1] == pattern.OTHER:
        return words.BOUNDED, "requests that have no class of their own"
    if view.is_pinned(key):
        return words.PINNED, "; ".join(
            r.reason for r in view.in_force if r.kind == rules.PINNED and r.becomes == key[1]
        )
    if finding.modes == 2:
        told_apart = (
            f", told apart by {finding.split_attribute} {finding.split_value}"
            if finding.split_attribute
            else ""
        )
        shares = (
            f"{finding.mode_low_ms:.3g} ms and {finding.mode_high_ms:.3g} ms ({finding.mode_high_share:.0%})"
        )
        return words.FLAGGED, f"two modes: {shares}{told_apart}"
    for kind, verdict in (
        (rules.MERGED, words.MERGED),
        (rules.LEARNED, words.LEARNED),
        (rules.BOUNDED, words.BOUNDED),
    ):
        if makers := view.makers(key, kind):
            return verdict, f"{len(makers)} rules: {makers[0].reason}"
    if key not in view.modes:
        return words.UNSURE, f"fewer than {options.min_samples} good calls to judge by"
    return _beside(near, options)


def _beside(near: merge.Nearest | None, options: Options) -> tuple[str, str]:
    if near is None:
        return words.KEPT, "the only class of its method that was seen at its load"
    verdict, comparison = near.comparison.verdict(options), near.comparison
    effects = (
        f"distance {comparison.distance:.2f}, means 1:{comparison.ratio:.2f}, "
        f"calls per request differ by {comparison.child_difference:.2f}"
    )
    if verdict == "different":
        return words.KEPT, f"differs from {near.template}: {effects}"
    if verdict == "alike":
        return (
            words.KEPT,
            f"alike {near.template} ({effects}), not merged: not confirmed yet, or no common template",
        )
    return words.UNSURE, f"neither alike nor clearly different from {near.template}: {effects}"


def _split(view: View, key: Key, seen: modes.Modes, options: Options) -> split.Split:
    """Finds the attribute that separates the modes.

    Only traces are used whose calls are in the sample together with all calls that they made.
    """
    generations = (view.live[key].now, view.live[key].before)
    samples = [generation.calls.rows() for generation in generations]
    whole = np.concatenate([r["key"] < g.both for r, g in zip(samples, generations, strict=True)])
    rows = np.concatenate(samples)
    good = ~rows["failed"]
    high, rows = (seen.high > 0.5)[whole[good]], rows[whole & good]
    names = [*view.names.values]
    named = {name: rows[name].astype("i8") for name in _NAMED}
    status, index = np.unique(rows["status"], return_inverse=True)
    named["status"] = index + len(names)
    names += [str(value) for value in status]
    named |= _children(view, key, rows, names)
    numeric = {name: rows[name].astype("f8") for name in _NUMERIC}
    return split.best(high, named, numeric, names, options)


def _children(view: View, key: Key, rows: Records, names: list[str]) -> dict[str, Ints]:
    """Returns, for each of the most called callees, whether each call's trace calls it.

    Values are codes; "not called" and "called" are appended to `names`.
    """
    kept = view.live[key]
    children = np.concatenate([generation.children.rows() for generation in (kept.now, kept.before)])
    callees, count = np.unique(children["callee"], return_counts=True)
    no, yes = len(names), len(names) + 1
    names += ["not called", "called"]
    found = {}
    for code in callees[np.argsort(-count)][:_MOST_CALLEES]:
        called = np.isin(rows["trace"], children["trace"][children["callee"] == code])
        found[f"child {view.names.values[code]}"] = np.where(called, yes, no)
    return found

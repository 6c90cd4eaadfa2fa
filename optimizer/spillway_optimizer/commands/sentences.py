"""Describes the explanation of one route in sentences. Pure."""

from typing import Any

from spillway_optimizer.rulesets.reasons import listed

# Marginal costs of used destinations count as equal within this relative difference, because
# weights are integers and solvers stop early.
_EQUAL = 0.05
_LEAST_MS = 0.05


def of_route(route: dict[str, Any], objective_usd_per_hour: float) -> list[str]:
    """Returns sentences about one route.

    They state the split, what time is worth, the cost of one more call, whether a shift would pay,
    and what binds.
    """
    used = sorted((d for d in route["destinations"] if d["share"] > 0), key=lambda d: -d["share"])
    rest = sorted((d for d in route["destinations"] if d["share"] <= 0), key=lambda d: d["marginal_ms"])
    lines = [_split(route, used), *_values(route)]
    lines += [_cost(route, d) for d in used]
    lines.append(_balance(used, rest))
    lines += _verdict(route, objective_usd_per_hour)
    return lines + [f"binds: {sentence}" for sentence in route["binding"]]


def of_p99(p99: dict[str, Any]) -> str:
    """Returns a sentence about the p99 of an entry class in one cluster, and its target."""
    text = f"The p99 of {p99['class_id']} in {p99['cluster']} is "
    if p99["p99_ms"] is None:
        return text + "unknown: the spread of some class that it calls, or its own, is not known."
    text += f"estimated at {p99['p99_ms']:.0f} ms"
    if p99["target_ms"] is None:
        return f"{text}."
    where = "above" if p99["p99_ms"] > p99["target_ms"] else "within"
    return f"{text}, {where} its target of {p99['target_ms']:g} ms."


def _split(route: dict[str, Any], used: list[dict[str, Any]]) -> str:
    who = f"{route['source_service']} in {route['source_cluster']}"
    where = listed([f"{d['share']:.2%} to {d['cluster']}" for d in used])
    if route["rps"] <= 0:
        return f"{who} makes no such calls now; a first one would go {where}."
    return f"{who} makes {route['rps']:.1f} such calls per second and sends {where}."


def _values(route: dict[str, Any]) -> list[str]:
    values = [f"{value:.3g} ms in {class_id}" for class_id, value in route["values"].items()]
    return [f"One ms that users wait counts as {listed(values)}."] if values else []


def _cost(route: dict[str, Any], d: dict[str, Any]) -> str:
    here, below = d["here"], d["below"]
    parts = [
        (here["service"], "of service"),
        (here["queueing"], "of queueing"),
        (below["service"] + below["queueing"], "in what it calls"),
        (here["network"] + below["network"], "of network"),
        (here["egress"] + below["egress"], "worth of egress"),
        (here["crowding"] + below["crowding"], "that others wait longer"),
        (here["failures"] + below["failures"], "for its failures"),
    ]
    terms = listed([f"{ms:.1f} ms {what}" for ms, what in parts if abs(ms) >= _LEAST_MS])
    return f"One more call to {d['cluster']} costs {d['marginal_ms']:.1f} ms: {terms}."


def _balance(used: list[dict[str, Any]], rest: list[dict[str, Any]]) -> str:
    low, high = (f(used, key=lambda d: d["marginal_ms"]) for f in (min, max))
    spread = high["marginal_ms"] - low["marginal_ms"]
    if len(used) > 1 and spread <= _EQUAL * high["marginal_ms"]:
        text = "Where calls go they cost the same to within "
        text += f"{max(spread / high['marginal_ms'], 1e-4):.2%}: moving any of them gains nothing"
    elif len(used) > 1:
        text = f"One more to {high['cluster']} costs {spread:.1f} ms more than to {low['cluster']}"
    else:
        text = f"Everything goes to {low['cluster']}"
    if not rest:
        return text + "."
    nearest = rest[0]
    further = nearest["marginal_ms"] - low["marginal_ms"]
    compared = f"{abs(further):.1f} ms {'more' if further >= 0 else 'less'}"
    return f"{text}; {nearest['cluster']}, the cheapest that gets nothing, would cost {compared}."


def _verdict(route: dict[str, Any], objective_usd_per_hour: float) -> list[str]:
    """Describes the best one-percent shift that breaks no constraint.

    Also describes the best of the other shifts, if it would gain more.
    """
    shifts = [
        (d[way], f"{abs(d[way]['moved']):.2%} {word} {d['cluster']}")
        for d in route["destinations"]
        for way, word in (("more", "more to"), ("less", "less to"))
        if d[way] is not None
    ]
    if not shifts:
        return ["There is no other destination to move calls to."]
    least = -1e-6 * max(objective_usd_per_hour, 1e-9)
    free = _best([shift for shift in shifts if not shift[0]["breaks"]])
    held = _best([shift for shift in shifts if shift[0]["breaks"]])
    lines = [_allowed(*free, least) if free else "No shift is allowed."]
    limit = min(least, free[0]["objective_usd_per_hour"]) if free else least
    if held and held[0]["objective_usd_per_hour"] < limit:
        effect, what = held
        lines.append(f"But for {listed(list(effect['breaks']))}, {what} would gain: {_effect(effect)}.")
    return lines


def _best(shifts: list[tuple[dict[str, Any], str]]) -> tuple[dict[str, Any], str] | None:
    return min(shifts, key=lambda shift: shift[0]["objective_usd_per_hour"], default=None)


def _allowed(effect: dict[str, Any], what: str, least: float) -> str:
    if effect["objective_usd_per_hour"] < least:
        return f"A shift would pay: {what} would mean {_effect(effect)}."
    return f"No shift of one percent pays: the best, {what}, would mean {_effect(effect)}."


def _effect(effect: dict[str, Any]) -> str:
    return (
        f"{effect['mean_latency_ms']:+.3f} ms of mean latency, {effect['egress_usd_per_hour']:+.4f} $/h of egress and "
        f"{effect['objective_usd_per_hour']:+.4f} $/h of objective ({effect['objective_share']:+.3%})"
    )

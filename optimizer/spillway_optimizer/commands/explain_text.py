"""Formats the document of explaining.py as text: sentences, then the tables behind them."""

from typing import Any

from spillway_optimizer.commands.tables import table

_COSTS = (
    "destination", "weight", "now", "busy", "one more", "service", "queueing", "below", "network", "egress", "crowding",
    "failures",
)  # fmt: skip
_SHIFTS = ("shift", "mean ms", "egress $/h", "$/h", "objective", "")


def as_text(document: dict[str, Any]) -> str:
    """Returns the document as text."""
    p = document["predicted"]
    lines = [
        f"{document['class']} from {document['cluster']}, split by {document['rules_from']}",
        f"from {document['source']}; predicted: mean {p['mean_latency_ms']:.2f} ms, "
        f"egress {p['egress_usd_per_hour']:.4f} $/h, objective {p['objective_usd_per_hour']:.4f} $/h",
        *(f"what if: {change}" for change in document["what_if"]),
        *(p99["words"] for p99 in document["p99"]),
        *(f"note: {note}" for note in document["notes"]),
        *(f"binds the whole: {sentence}" for sentence in document["binding"]),
    ]
    for route in document["routes"]:
        lines += ["", *route["words"], "", *_costs(route), "", *_shifts(route)]
    lines += [
        "",
        "ms of one more call; below: service and queueing of the calls it causes; network and egress: on the way and "
        "below; egress as what it is worth; crowding: what everybody else waits longer; failures: what they count as.",
    ]
    if any(p99["target_ms"] is not None for p99 in document["p99"]):
        lines.append("These costs leave tail targets out. The objective of a shift contains them.")
    return "\n".join(lines)


def _costs(route: dict[str, Any]) -> list[str]:
    order = sorted(route["destinations"], key=lambda d: (-d["share"], d["marginal_ms"]))
    rows = []
    for d in order:
        here, below = d["here"], d["below"]
        times = (
            d["marginal_ms"], here["service"], here["queueing"], below["service"] + below["queueing"],
            here["network"] + below["network"], here["egress"] + below["egress"], here["crowding"] + below["crowding"],
            here["failures"] + below["failures"],
        )  # fmt: skip
        today = "-" if d["share_now"] is None else f"{d['share_now']:.2%}"
        rows.append(
            (
                d["cluster"],
                f"{d['share']:.2%}",
                today,
                f"{d['utilisation']:.0%}",
                *(f"{ms:.2f}" for ms in times),
            )
        )
    return table(_COSTS, rows) + [f"{cluster}: no: {why}" for cluster, why in route["excluded"].items()]


def _shifts(route: dict[str, Any]) -> list[str]:
    rows = []
    for d in route["destinations"]:
        for effect in (d["more"], d["less"]):
            if effect is not None:
                breaks = f"breaks: {'; '.join(effect['breaks'])}" if effect["breaks"] else ""
                rows.append((
                    f"{effect['moved']:+.2%} to {d['cluster']}", f"{effect['mean_latency_ms']:+.4f}",
                    f"{effect['egress_usd_per_hour']:+.5f}", f"{effect['objective_usd_per_hour']:+.5f}",
                    f"{effect['objective_share']:+.4%}", breaks,
                ))  # fmt: skip
    return table(_SHIFTS, rows) if rows else []

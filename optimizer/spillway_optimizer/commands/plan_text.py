"""Formats the document of plan.py as text."""

from typing import Any

from spillway_optimizer.commands.sentences import of_p99
from spillway_optimizer.commands.tables import table

_HEAD = ("", "mean ms", "compute", "network", "egress $/h", "$/h", "above best", "gap", "busiest")
_MOST_NOTES = 12


def as_text(document: dict[str, Any], all_rules: bool) -> str:
    """Returns a comparison, then the rules of the optimum.

    With `all_rules`, it shows the rules of every policy.
    """
    size = document["size"]
    demand = ", ".join(f"{rps:.0f} in {cluster}" for cluster, rps in size["demand_rps"].items() if rps > 0)
    lines = [
        f"from {document['source']}, window {document['input_window']}",
        f"{size['clusters']} clusters, {size['services']} services, {size['classes']} classes; "
        f"requests per second: {demand}",
        *(f"what if: {change}" for change in document["what_if"]),
        *_notes(document["notes"]),
        "",
        *_comparison(document),
        "",
        f"now: {document['now']['rules_from']}",
    ]
    for name, row in (("now", document["now"]), *document["policies"].items()):
        lines += [f"{name}: {note}" for note in row.get("notes", ())]
        lines += [f"{name}: {of_p99(p99)}" for p99 in row.get("p99", ()) if p99["target_ms"] is not None]
        lines += [f"{name}: no answer: {row['error']}"] if "error" in row else []
    for name, row in document["policies"].items():
        if (all_rules or name == document["optimum"]) and "rules" in row:
            lines += _rules(name, row)
    lines += ["", "Nothing was published."]
    return "\n".join(lines)


def _notes(notes: list[str]) -> list[str]:
    rest = len(notes) - _MOST_NOTES
    return [f"note: {note}" for note in notes[:_MOST_NOTES]] + (
        [f"note: and {rest} more, see --json"] if rest > 0 else []
    )


def _comparison(document: dict[str, Any]) -> list[str]:
    rows = [("now", document["now"]), *document["policies"].items()]
    return table(_HEAD, [_row(name, row) for name, row in rows if "error" not in row])


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    gap, above = row.get("relative_gap"), row["above_optimum"]
    return (
        name,
        f"{row['mean_latency_ms']:.2f}",
        f"{row['compute_ms']:.2f}",
        f"{row['network_ms']:.2f}",
        f"{row['egress_usd_per_hour']:.4f}",
        f"{row['objective_usd_per_hour']:.4f}",
        "-" if above is None else f"{above:+.1%}",
        "-" if gap is None else f"{gap:.1e}",
        f"{row['highest_utilisation']:.0%}",
    )


def _rules(name: str, row: dict[str, Any]) -> list[str]:
    lines = ["", f"rules of {name}:"]
    lines += [f"  binds: {sentence}" for sentence in row["binding"]]
    for rule in row["rules"]:
        weights = ", ".join(f"{cluster} {weight / 100:g} %" for cluster, weight in rule["weights"].items())
        lines += [
            f"  {rule['source_cluster']}/{rule['source_service']} -> {rule['class']}: {weights}",
            f"      {rule['reason']}",
        ]
    return lines

"""What a live run prints: the comparison with intervals, the decision and why, one JSON line."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clickhouse_driver import Client

from spillway_lab.load.machine import Busyness
from spillway_lab.report import report, tables
from spillway_lab.report.report import Result
from spillway_lab.report.results import Run
from spillway_lab.report.round_samples import RoundSamples
from spillway_lab.report.statistics import Comparison, Estimate, Metric
from spillway_lab.stack.control import InForce, describe
from spillway_lab.stack.stack import ROOT, LabStack

WHY = ROOT / "docs/sql/why.sql"
_FIGURES: dict[Metric, tuple[str, str]] = {
    "mean_ms": ("mean ms", ".1f"),
    "p50_ms": ("p50 ms", ".1f"),
    "p99_ms": ("p99 ms", ".0f"),
    "failed_share": ("failed", ".1%"),
    "egress_usd_per_hour": ("egress $/h", ".4f"),
}
_SPILLWAY = "spillway"


def show(
    running: LabStack,
    run: Run,
    samples: Sequence[RoundSamples],
    results: Mapping[str, Result],
    last: InForce,
    machine: Busyness,
    folder: Path,
) -> None:
    """Prints the outcome to stdout. The last line is the JSON of report.py."""
    plot, comparison = folder / "latency-cdf.png", Comparison(run, samples)
    report.plot_cdf(results, plot, f"{run.scenario}: the same load under {len(results)} policies")
    rounds = len(run.rounds) // max(1, len(results))
    print(f"\n{run.question}" if run.question else "")
    print(f"{_how(run)}\n\n{report.table(results)}\n")
    print(f"With 95 % intervals over {rounds} rounds; a failed request counts with the client's timeout:\n")
    print(figures(comparison))
    if ratios := verdicts(run, comparison):
        print("\n" + "\n".join(ratios))
    print(f"\nMachine while measuring: {machine}.{disturbance(run)}")
    print(f"\nLatency CDF: {plot}\nResults: {folder}")
    print(f"\nRuleset {last.version} ({last.policy}), predicted mean {_predicted(last, run):.1f} ms:\n")
    print(describe(last))
    print(f"\nWhy, in SQL ({WHY.relative_to(ROOT)}):\n\n{WHY.read_text().strip()}\n")
    print(tables.answer(Client.from_url(running.clickhouse_url()), WHY))
    disturbed = any(each.disturbed for each in run.rounds)
    print(f"\n{report.policies_json(results, machine, disturbed)}", flush=True)


def _how(run: Run) -> str:
    text = "Measured at the clients; egress counted on the Envoys' connections."
    if run.time_scale == 1:
        return text
    return (
        f"{text} The run was stretched {run.time_scale:g} times; latencies, rates and prices per hour\n"
        "are in scenario time. Reasons of rules and answers in SQL are in that of the machine."
    )


def _predicted(last: InForce, run: Run) -> float:
    return last.predicted_mean_ms / run.time_scale


def figures(comparison: Comparison) -> str:
    """Returns a table with a line per policy: each figure with its interval."""
    rows = [
        [
            policy,
            *(_cell(comparison.estimate(policy, metric), spec) for metric, (_, spec) in _FIGURES.items()),
        ]
        for policy in comparison.policies
    ]
    return tables.text(["policy", *(title for title, _ in _FIGURES.values())], rows)


def verdicts(run: Run, comparison: Comparison) -> list[str]:
    """Returns a sentence on Spillway beside each other policy. Empty without Spillway."""
    if _SPILLWAY not in comparison.policies:
        return []
    predicted = run.facts.get("predicted", {})
    lines = []
    for policy in comparison.policies:
        if policy != _SPILLWAY:
            ratio = comparison.ratio(_SPILLWAY, policy, "mean_ms")
            line = f"Mean of spillway / {policy}: {_cell(ratio, '.2f')}"
            if policy in predicted and _SPILLWAY in predicted:
                theory = predicted[_SPILLWAY]["mean_ms"] / predicted[policy]["mean_ms"]
                line += f"; queueing theory predicts {theory:.2f}"
            lines.append(f"{line}.{_conclusion(run, ratio)}")
    return lines


def _conclusion(run: Run, ratio: Estimate) -> str:
    if any(each.disturbed for each in run.rounds):
        return " No conclusion: the machine was disturbed."
    if ratio.low is None or ratio.high is None:
        return " No conclusion: the interval is unknown."
    if ratio.high < 1:
        return " Spillway is faster."
    return " Spillway is slower." if ratio.low > 1 else " They cannot be told apart."


def disturbance(run: Run) -> str:
    """Returns which rounds were disturbed, as a sentence, or nothing."""
    found = [f"{each.policy} {each.repetition + 1}" for each in run.rounds if each.disturbed]
    if not found:
        return ""
    return f" Disturbed were {len(found)} of {len(run.rounds)} rounds: {', '.join(found)}."


def _cell(estimate: Estimate, spec: str) -> str:
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return format(estimate.value, spec)
    return f"{estimate.value:{spec}} ({estimate.low:{spec}} to {estimate.high:{spec}})"

"""Verdicts: sentences that follow from intervals and from whether the machine was disturbed. Pure.

A verdict between policies never follows from values alone. Intervals are at 95 %, each for itself:
where two policies do not differ, one in twenty is told apart by chance.
"""

from dataclasses import dataclass
from typing import Literal

from spillway_lab.findings.gathered import Pair, RunFigures
from spillway_lab.findings.papers import Figure
from spillway_lab.report.statistics import Estimate, Metric

Outcome = Literal["better", "worse", "not told apart", "disturbed", "unknown"]
Reach = Literal["reached", "not told apart", "not reached", "disturbed", "unknown", "not compared"]
NAMES: dict[Metric, str] = {
    "mean_ms": "mean latency",
    "p50_ms": "median latency",
    "p90_ms": "p90 latency",
    "p99_ms": "p99 latency",
    "failed_share": "share of failed requests",
    "egress_usd_per_hour": "egress cost",
}
# Latencies and costs are compared by ratio. A share of failures that is 0 has none.
_BY_DIFFERENCE: tuple[Metric, ...] = ("failed_share",)


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    sentence: str


def judge(figures: RunFigures, policy: str, other: str, metric: Metric) -> Verdict:
    """Returns whether a policy is better than another by one metric. Less is always better."""
    name, pair = NAMES[metric], figures.pair(policy, other, metric)
    missing = [each for each in (policy, other) if each not in figures.policies]
    if missing:
        return Verdict("unknown", f"No conclusion about {name}: {' and '.join(missing)} did not run.")
    if figures.disturbed:
        rounds = f"{figures.disturbed} of {figures.setting.rounds} rounds"
        return Verdict(
            "disturbed", f"No conclusion about {name}: the machine was too busy in {rounds} (disturbed)."
        )
    outcome = outcome_of(pair, metric)
    return Verdict(outcome, _sentence(outcome, name, policy, other, pair))


def outcome_of(pair: Pair, metric: Metric) -> Outcome:
    """Returns the outcome of the first policy of a pair, on a machine that was not disturbed."""
    ratio, difference = pair.ratio, pair.difference
    if ratio.low is not None and ratio.high is not None and metric not in _BY_DIFFERENCE:
        return "better" if ratio.low > 1 else "worse" if ratio.high < 1 else "not told apart"
    if difference.low is None or difference.high is None:
        return "unknown"
    return "better" if difference.high < 0 else "worse" if difference.low > 0 else "not told apart"


def _sentence(outcome: Outcome, name: str, policy: str, other: str, pair: Pair) -> str:
    if outcome == "unknown":
        return (
            f"No conclusion about {name}: its interval is unknown under {policy} or {other}, "
            "for example because there is one round."
        )
    factor = f": {other} has {interval(pair.ratio)} times as much" if pair.ratio.bounded else ""
    if outcome == "not told apart":
        return f"`{policy}` and `{other}` are not told apart in {name}{factor}."
    return f"`{policy}` is {outcome} than `{other}` in {name}{factor}."


def reach(figure: Figure, ours: Estimate, disturbed: bool) -> Reach:
    """Returns whether our figure reaches that of a paper, by our interval.

    It is not told apart if the interval contains the paper's figure. A figure
    without an interval, such as the time of a benchmark, is compared by its value.
    """
    if ours.value is None:
        return "unknown"
    if disturbed:
        return "disturbed"
    if not figure.compare:
        return "not compared"
    low = ours.value if ours.low is None else ours.low
    high = ours.value if ours.high is None else ours.high
    if figure.better == "less":
        return (
            "reached" if high <= figure.value else "not reached" if low > figure.value else "not told apart"
        )
    return "reached" if low >= figure.value else "not reached" if high < figure.value else "not told apart"


def interval(found: Estimate, percent: bool = False) -> str:
    """Returns "value (low–high)", "value" where the interval is unknown, or "unknown".

    `percent`: of a share, as a number of percent.
    """
    if found.value is None:
        return "unknown"
    text = _number(found.value, percent)
    if found.low is None or found.high is None:
        return text
    return f"{text} ({_number(found.low, percent)}–{_number(found.high, percent)})"


def _number(value: float, percent: bool) -> str:
    """Returns three significant digits."""
    value = 100 * value if percent else value
    return "0" if value == 0 else f"{value:.0f}" if abs(value) >= 99.95 else f"{value:#.3g}"

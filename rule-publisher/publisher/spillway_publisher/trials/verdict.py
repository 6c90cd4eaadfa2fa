"""Whether a trial goes on, is kept or is rolled back, from what is known of it. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from spillway_contracts import names
from spillway_contracts.guardrails import CanaryPolicy

from spillway_publisher.rules.answers import Refusal
from spillway_publisher.rules.canary import Trial

# Fewer calls than this say nothing about the share that fails.
ENOUGH = 30
# One-sided, at 1 %: how often a trial is rolled back that fails no more than the others.
Z = 2.326


class Verdict(Enum):
    GO_ON = "go on"
    KEEP = "keep"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Calls:
    """Calls of the services that a trial changes.

    `failed`: their failed share, 0 to 1. `cost_ms` and `spread_ms`: mean and standard deviation of
    what one costs, the time at its caller and its egress at $/ms.
    """

    count: int
    failed: float
    cost_ms: float = 0.0
    spread_ms: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """What is known of a trial.

    `unserved`: clusters that take part, and of which a relay does not serve the trial. `elected`
    and `in_force`: how many of the connected Envoys are elected, and how many of these have it in
    force. `calls`: by group `tried`, `beside` (routed by the other rules meanwhile) and `before`,
    missing where there are none; or, as text, why they are unknown; None: nobody asked.
    """

    refusals: Sequence[Refusal]
    unserved: Sequence[str]
    elected: int
    in_force: int
    calls: Mapping[str, Calls] | str | None


def judge(trial: Trial, evidence: Evidence, policy: CanaryPolicy | None, now_ns: int) -> tuple[Verdict, str]:
    """Returns the verdict and the reason for it. `policy`: None, if it was removed meanwhile."""
    compared = policy is not None and policy.compares
    if evidence.refusals:
        first = evidence.refusals[0]
        return Verdict.ROLL_BACK, f"{first.envoy} refused it: {first.detail}"
    if policy is not None and isinstance(evidence.calls, Mapping):
        why = _failing(evidence.calls, policy.failed_share)
        why = why or _costly(trial, evidence.calls, policy.cost_rise)
        if why:
            return Verdict.ROLL_BACK, why
    if now_ns < trial.decided_at_ns:
        return Verdict.GO_ON, ""
    if not trial.complete:
        return Verdict.ROLL_BACK, "it has not reached every cluster"
    if evidence.unserved:
        return Verdict.ROLL_BACK, f"relays of {', '.join(evidence.unserved)} do not serve it"
    if not evidence.elected:
        return Verdict.ROLL_BACK, "no connected Envoy is elected; raise the share, or name more clusters"
    if evidence.in_force < evidence.elected:
        return Verdict.ROLL_BACK, f"{evidence.in_force} of {evidence.elected} elected Envoys have it in force"
    if compared and not isinstance(evidence.calls, Mapping):
        return Verdict.ROLL_BACK, f"what became of calls is unknown: {evidence.calls or 'nothing was asked'}"
    if compared and isinstance(evidence.calls, Mapping) and _silent(evidence.calls):
        return (
            Verdict.ROLL_BACK,
            f"no call is known since it began, and {evidence.calls['before'].count} before",
        )
    return Verdict.KEEP, f"{evidence.elected} elected Envoys have it in force; {_told(evidence.calls)}"


def _silent(calls: Mapping[str, Calls]) -> bool:
    """Returns whether no call is known since the trial began, although some were before."""
    return set(calls) == {"before"} and calls["before"].count >= ENOUGH


def _failing(calls: Mapping[str, Calls], rise: float | None) -> str | None:
    """Returns that clearly more calls fail than without the trial, or None."""
    if rise is None:
        return None
    tried, (control, name) = calls.get("tried"), _control(calls)
    if tried is None or tried.count < ENOUGH:
        return None
    if lowest(tried) <= control.failed + rise:
        return None
    return (
        f"{tried.failed:.1%} of {tried.count} calls failed, and {control.failed:.1%} of {control.count} {name}; "
        f"failed_share allows {rise:.1%} more"
    )


def _costly(trial: Trial, calls: Mapping[str, Calls], rise: float | None) -> str | None:
    """Returns that a call clearly costs more than before the trial, or None.

    Where a part of a cluster's Envoys tries it, all of the cluster's calls count. Calls that go
    elsewhere may themselves be slower, and make those faster that stay.
    """
    groups = [calls[name] for name in ("tried", "beside") if name in calls]
    if trial.whole.canary.share == names.VALUE_WEIGHT_TOTAL:
        groups = groups[:1] if "tried" in calls else []
    now, before = together(groups), calls.get("before")
    if rise is None or now is None or before is None or min(now.count, before.count) < ENOUGH:
        return None
    error_ms = math.hypot(now.spread_ms / math.sqrt(now.count), before.spread_ms / math.sqrt(before.count))
    if now.cost_ms - Z * error_ms <= before.cost_ms * (1 + rise):
        return None
    return f"a call costs {now.cost_ms:.1f} ms, and {before.cost_ms:.1f} ms before; cost_rise allows {rise:.1%} more"


def together(groups: Sequence[Calls]) -> Calls | None:
    """Returns the calls of disjoint groups as one; None without calls."""
    count = sum(group.count for group in groups)
    if not count:
        return None
    failed = sum(group.count * group.failed for group in groups) / count
    cost_ms = sum(group.count * group.cost_ms for group in groups) / count
    squares = sum(g.count * (g.spread_ms**2 + (g.cost_ms - cost_ms) ** 2) for g in groups)
    return Calls(count, failed, cost_ms, math.sqrt(squares / count))


def _control(calls: Mapping[str, Calls]) -> tuple[Calls, str]:
    """Returns what the calls on trial are compared with; without any calls, none that fails."""
    for name in ("beside", "before"):
        if name in calls and calls[name].count >= ENOUGH:
            return calls[name], name
    return Calls(0, 0.0), "others"


def lowest(calls: Calls) -> float:
    """Returns the lower end of Wilson's interval of the failed share."""
    n, p = calls.count, calls.failed
    middle = p + Z * Z / (2 * n)
    half = Z * math.sqrt(max(p * (1 - p), 0.0) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n)


def _told(calls: Mapping[str, Calls] | str | None) -> str:
    if calls is None or isinstance(calls, str):
        return "failed calls were not compared"
    if (tried := calls.get("tried")) is None:
        return "it routed no call"
    return f"{tried.failed:.1%} of {tried.count} calls failed"

"""A capacity after a change: evidence from before it no longer counts. Pure.

A change that made a pod slower must not give it the capacity of something else that did not change: where other evidence
than CPU use was decisive, CPU use alone does not raise it again.
"""

from dataclasses import replace

import numpy as np

from spillway_streams.capacity.capacity import Capacity


def after(before: Capacity | None, found: Capacity | None, factor: float, slowed: float) -> Capacity | None:
    """What holds now. `found`: from the seconds since the change; `factor`: by which latency or CPU use per request
    changed; `slowed`: rps per pod as `slower` tells them, for want of anything better."""
    if before is None:
        return found
    by_cpu = before.evidence == "cpu" or (before.disagreement <= 1 and "cpu" in before.others)
    if found is not None and (factor < 1 or not found.weak) and (found.evidence != "cpu" or by_cpu):
        too_high = factor > 1 and found.rps > before.rps
        return replace(before, reason=f"{before.reason}; held: slower cannot do more") if too_high else found
    if factor < 1:
        return replace(before, reason=f"{before.reason}; held: it became faster, by what is not known yet")
    rps = min(slowed, before.rps)
    reason = f"{before.rps:.1f} rps before, slower by a factor of {factor:.1f}: as if it did everything that much slower"
    return replace(before, rps=rps, se=max(before.se, 0.2 * rps), high=0.0, reason=reason, weak=True)


def slower(rps: float, load: tuple[float, float], wait_s: tuple[float, float], completed: float) -> float:
    """A pod's rps after a change, from those before: `load` (requests per second) and `wait_s` (latency) before and after
    it. The queue is taken for that of one worker, whose latency is s / (1 - u): it is slower by the s that explains both.
    It did at least what was completed."""
    own = wait_s[0] * max(1 - load[0] / rps, 0.0)
    s = wait_s[1] / max(own + wait_s[1] * load[1] / rps, 1e-12)
    return max(rps / max(s, 1e-12), completed)


def completed(arrived: np.ndarray, latency_ms: np.ndarray) -> float:
    """Requests per second that left, of those that arrived in consecutive seconds (n,)."""
    if len(arrived) < 2:
        return 0.0
    edge = max(min(len(arrived) // 4, 5), 1)
    rise = (latency_ms[-edge:].mean() - latency_ms[:edge].mean()) / 1000 / (1 - edge / len(arrived))
    return float(arrived.sum() / max(len(arrived) + rise, 1.0))

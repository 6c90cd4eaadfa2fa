"""A capacity after a change of the pod: earlier evidence no longer counts. Pure.

A pod that became slower must not get a higher capacity from evidence that the change did not touch.
Where evidence other than CPU use was decisive, CPU use alone does not raise the capacity again.
"""

from dataclasses import replace

from spillway_streams.batches.arrays import Floats
from spillway_streams.capacity.capacity import Capacity


def after(before: Capacity | None, found: Capacity | None, factor: float, slowed: float) -> Capacity | None:
    """Returns the capacity that holds now.

    `found`: from the seconds since the change; `factor`: by which latency or CPU use per request
    changed; `slowed`: rps per pod by `slower`, used when there is nothing better.
    """
    if before is None:
        return found
    by_cpu = before.evidence == "cpu" or (before.disagreement <= 1 and "cpu" in before.others)
    if found is not None and (factor < 1 or not found.weak) and (found.evidence != "cpu" or by_cpu):
        too_high = factor > 1 and found.rps > before.rps
        return (
            replace(before, reason=f"{before.reason}; held: a slower service cannot serve more")
            if too_high
            else found
        )
    if factor < 1:
        return replace(
            before, reason=f"{before.reason}; held: the service became faster, by an unknown factor"
        )
    rps = min(slowed, before.rps)
    reason = (
        f"{before.rps:.1f} rps before, slower by a factor of {factor:.1f} now, assumed for all of its work"
    )
    return replace(before, rps=rps, se=max(before.se, 0.2 * rps), high=0.0, reason=reason, weak=True)


def slower(rps: float, load: tuple[float, float], wait_s: tuple[float, float], completed: float) -> float:
    """Returns a pod's rps after a change, from its rps before.

    `load`: requests per second before and after the change; `wait_s`: latency before and after. The
    queue is taken as that of one worker, whose latency is s / (1 - u). The factor on s that
    explains both latencies is how much slower the pod is. `completed`: rps that it has completed
    since; the result is no lower.
    """
    idle_wait = wait_s[0] * max(1 - load[0] / rps, 0.0)
    s = wait_s[1] / max(idle_wait + wait_s[1] * load[1] / rps, 1e-12)
    return max(rps / max(s, 1e-12), completed)


def completed(arrived: Floats, latency_ms: Floats) -> float:
    """Returns how many requests per second left, of those that arrived.

    `arrived`, `latency_ms`: of consecutive seconds, (n,).
    """
    if len(arrived) < 2:
        return 0.0
    edge = max(min(len(arrived) // 4, 5), 1)
    rise = (latency_ms[-edge:].mean() - latency_ms[:edge].mean()) / 1000 / (1 - edge / len(arrived))
    return float(arrived.sum() / max(len(arrived) + rise, 1.0))

"""Which capacity holds when CPU use, latency, refusals and growing queues tell different ones. Pure.

A pod can do no more than the scarcest of what it needs. CPU use knows the processor alone and is exact about it; latency
knows every queue and is rough; what is completed while a queue grows, or requests are refused, is the limit itself, but is
seen in overload alone. So CPU use goes first, unless another evidence is lower by more than the errors of both explain.
"""

from collections.abc import Iterable
from dataclasses import replace

from spillway_streams.capacity.capacity import Capacity

MARGIN = 0.1  # relative: forms of queues differ by so much from real ones


def weigh(
    cpu: Capacity | None,
    latency: Capacity | None,
    queue: Capacity | None,
    proportional: Capacity | None,
    no_cpu: str,
) -> Capacity | None:
    """The decisive one with the values of all. `proportional`: to CPU use that does not follow the load, which goes
    before a latency that hardly tells anything; `no_cpu`: why there is none from CPU."""
    direct = latency if queue is None or (latency is not None and _below(latency, queue)) else queue
    use = cpu
    if use is None and (direct is None or direct.weak):
        use = proportional
    found = use or direct
    if found is None:
        return None
    if use is not None and direct is not None and _below(direct, use):
        found = direct
    known = [one for one in (cpu, latency, queue) if one is not None]
    if found.source == "curve" and cpu is None:
        found = replace(found, reason=f"{no_cpu}: {found.reason}")
    disagreement, contradicted = _contradiction(found, known)
    return replace(
        found,
        reason=found.reason + contradicted,
        others={one.evidence: (one.rps, one.se) for one in known},
        disagreement=disagreement,
    )


def _below(low: Capacity, high: Capacity) -> bool:
    return low.most < (1 - MARGIN) * (high.rps - 2 * high.se)


def _contradiction(found: Capacity, known: Iterable[Capacity]) -> tuple[float, str]:
    higher = [one for one in known if one is not found and _below(found, one)]
    if not higher:
        return 1.0, ""
    most = max(higher, key=lambda one: one.rps)
    return most.rps / found.rps, f"; {most.evidence} alone would tell {most.rps:.1f} rps per pod"

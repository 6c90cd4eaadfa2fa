"""Which capacity holds when CPU use, latency, refusals and growing queues disagree. Pure.

A pod can do no more than its scarcest resource allows. CPU use covers only the processor, and is
exact about it. Latency covers every queue, and is rough. The rate completed while a queue grows, or
while requests are refused, is the limit itself, but it is seen in overload only. CPU use therefore
decides, unless other evidence is lower by more than the errors of both explain.
"""

from collections.abc import Iterable
from dataclasses import replace

from spillway_streams.capacity.capacity import Capacity

MARGIN = 0.1  # relative: real queues differ by so much from the forms that are fitted


def weigh(
    cpu: Capacity | None,
    latency: Capacity | None,
    queue: Capacity | None,
    proportional: Capacity | None,
    no_cpu: str,
) -> Capacity | None:
    """Returns the decisive capacity, with the values of all kinds of evidence.

    `proportional`: capacity from CPU use that does not follow the load. It is preferred to a
    latency that is hardly better than a guess. `no_cpu`: why there is no capacity from CPU use.
    None when nothing decides.
    """
    direct = latency if queue is None or (latency is not None and _below(latency, queue)) else queue
    use = cpu
    if use is None and (direct is None or direct.weak):
        use = proportional
    found = use or direct
    if found is None:
        return None
    if use is not None and direct is not None and _below(direct, use):
        found = direct
    known = [estimate for estimate in (cpu, latency, queue) if estimate is not None]
    if found.source == "curve" and cpu is None:
        found = replace(found, reason=f"{no_cpu}: {found.reason}")
    disagreement, contradicted = _contradiction(found, known)
    return replace(
        found,
        reason=found.reason + contradicted,
        others={estimate.evidence: (estimate.rps, estimate.se) for estimate in known},
        disagreement=disagreement,
    )


def _below(low: Capacity, high: Capacity) -> bool:
    return low.most < (1 - MARGIN) * (high.rps - 2 * high.se)


def _contradiction(found: Capacity, known: Iterable[Capacity]) -> tuple[float, str]:
    higher = [estimate for estimate in known if estimate is not found and _below(found, estimate)]
    if not higher:
        return 1.0, ""
    most = max(higher, key=lambda estimate: estimate.rps)
    return most.rps / found.rps, f"; {most.evidence} alone would give {most.rps:.1f} rps per pod"

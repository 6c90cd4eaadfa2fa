"""L3's rate control (algorithm 2, equation 5): weights even out while a service's load rises. Pure.

A rising load would overrun the destination that was fastest a moment ago. With the load falling,
the fastest one gets more than its weight. The text of the paper has the case of a rising load;
those of a falling one are as in the authors' code, with the exponent 3/2 of the paper.
"""

import numpy as np

from spillway_optimizer.problem.arrays import Floats


def change(last_rps: float, ewma_rps: float) -> float:
    """Returns c, how far the last rate is from its average, relative to it; 0 without requests.

    `ewma_rps` has `last_rps` in it already.
    """
    return (last_rps - ewma_rps) / ewma_rps if last_rps > 0 and ewma_rps > 0 else 0.0


def adjusted(weights: Floats, c: float, least: float) -> Floats:
    """Returns the weights [destinations] at a relative change `c` of the load, none below `least`.

    Fewer than two destinations have no rate control.
    """
    if len(weights) < 2:
        return np.maximum(weights, least)
    mean = weights.mean()
    if c > 0:
        found = mean - mean / _damping(c) + weights / _damping(c)
    else:
        below = weights / _damping(2 * c)
        above = 2 * weights - mean - (weights - mean) / _damping(3 * c)
        found = np.where(weights <= mean, below, above)
    return np.maximum(found, least)


def _damping(change: float) -> float:
    return float((1 + change**2) ** 1.5)

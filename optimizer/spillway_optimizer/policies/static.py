"""`static`: weights that an operator wrote down once.

Source: "static load distribution" of the operators surveyed in SLATE appendix B (its ref. 23,
weights in Istio's DestinationRule). A route has the given weights, or else its pin in the problem's
constraints, or else shares in proportion to capacity. Such shares are what an operator would write
who has only counted machines. The weights do not follow load, latency or price.

A destination that cannot serve the class is left out, as a proxy does without healthy endpoints.
Its part goes to the others in proportion. If none of them is left, the capacity shares of those
that can serve apply. Side constraints other than denials, pins and draining are ignored.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.solution import Solution, from_shares

Route = tuple[str, str, str]  # source cluster, source service, class that is called


@dataclass(frozen=True)
class Static:
    """The policy. `weights` are by destination, at any scale."""

    weights: Mapping[Route, Mapping[str, float]] = field(default_factory=dict)  # by destination, any scale

    def route(self, problem: Problem) -> Solution:
        layout = problem.layout
        given = {**problem.constraints.pinned, **self.weights}
        shares = np.zeros(layout.usable.shape)
        for e, usable in enumerate(layout.usable):
            service = layout.services[layout.class_service[layout.edge_source[e]]]
            target = int(layout.edge_target[e])
            for i in np.flatnonzero(usable.any(axis=1)):
                pinned_weights = given.get((layout.clusters[i], service, layout.classes[target]), {})
                row = np.array([pinned_weights.get(c, 0.0) for c in layout.clusters]) * usable[i]
                if row.sum() <= 0:
                    row = layout.capacity[layout.class_service[target]] * usable[i]
                shares[e, i] = row / row.sum()
        return from_shares(problem, shares)

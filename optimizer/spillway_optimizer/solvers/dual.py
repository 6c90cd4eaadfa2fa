"""Minimises a convex problem by the prices of its stations (DESIGN decision 9).

Only stations couple requests. At given prices per (service, cluster), the best routing of every
request is a dynamic programme over its call tree. The value of prices, the dual, is concave:

    dual(price) = sum demand * cost(price)  -  sum conjugate(price)

The dual has kinks where requests change destination. They are smoothed: calls choose by logit at a
temperature tau. Newton's method then finds the prices at which the load that they attract is the
load that they pay for. After that tau falls, and the next round begins. Each temperature uses the
shares of the one before as its prior (proximal, by relative entropy), so the bias vanishes long
before tau is small. Any shares are a feasible routing, and any prices give a bound, so the gap is
certified at each tau.
"""

from dataclasses import dataclass

import numpy as np
from threadpoolctl import ThreadpoolController

from spillway_optimizer.solvers.application import Application
from spillway_optimizer.solvers.convex import Convex, Minimum, Stop
from spillway_optimizer.solvers.newton import Newton, Start
from spillway_optimizer.solvers.trees import Forest

_BLAS = ThreadpoolController()


@dataclass(frozen=True)
class Priced:
    """A minimum, and where the next solve can start."""

    minimum: Minimum
    start: Start


def minimise(convex: Convex, stop: Stop, start: Start | None = None, forest: Forest | None = None) -> Priced:
    """Minimises each application separately.

    `stop.rounds` is not used. `forest` keeps the call trees for the next problem of the same graph.
    """
    layout, began = convex.layout, stop.clock()
    flows, free = np.zeros(layout.usable.shape), np.zeros(layout.usable.shape)
    price, value, bound, tau = np.zeros(layout.capacity.shape), 0.0, 0.0, 0.0
    trees = (forest or Forest()).trees(layout, convex.priced)
    todo = [Application.of(convex, own) for own in trees]
    left = sum(application.demand.size for application in todo)
    for application in todo:
        # Each application may use a part of the remaining time, in proportion to its size.
        share = application.demand.size / left
        until = stop.clock() + share * max(stop.seconds - (stop.clock() - began), 0.0)
        left -= application.demand.size
        # The matrix products are small. A second thread waits longer than it computes, above all on
        # a busy machine.
        with _BLAS.limit(limits=1, user_api="blas"):
            found = Newton(convex, application, stop, until).run(start)
        flows[application.trees.edges] = found.calls[:, :, None] * found.routing.shares
        free[application.trees.edges] = found.routing.free
        s, c = application.trees.places
        price[application.trees.services[s], c] = found.price
        value, bound, tau = value + found.value, bound + found.bound, max(tau, found.tau)
    return Priced(Minimum(flows, value, min(bound, value), price), Start(price, free, tau))

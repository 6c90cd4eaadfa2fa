"""The policies by name. Each baseline states its source in its module's docstring.

An instance may remember its previous answer (Waterfall, Dealer). Keep one instance while a policy
is followed. Create a new one for an answer that must not depend on earlier ones.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from spillway_optimizer.discrete.limited import Limited
from spillway_optimizer.feedback import weights
from spillway_optimizer.feedback.policy import Feedback
from spillway_optimizer.policies.dealer import Dealer
from spillway_optimizer.policies.failover import Failover
from spillway_optimizer.policies.local import Local
from spillway_optimizer.policies.mostly_local import MostlyLocal
from spillway_optimizer.policies.round_robin import RoundRobin
from spillway_optimizer.policies.static import Static
from spillway_optimizer.policies.waterfall import Waterfall
from spillway_optimizer.policies.waterfall_central import WaterfallCentral
from spillway_optimizer.problem.solution import Policy
from spillway_optimizer.solvers.fast import Fast
from spillway_optimizer.tails.tailed import Tailed

SPILLWAY = "spillway"
EXACT = "exact"
MOSTLY_LOCAL = "mostly-local"
# These policies minimise the objective. Only their changes are judged by it.
MINIMISING = frozenset({SPILLWAY, EXACT})
# PAPA adjusts the rules of these. The last one exists to show what PAPA does without an optimum.
ADJUSTED = MINIMISING | {MOSTLY_LOCAL}
# These need no curves and no capacities.
MODEL_FREE = frozenset({"l3", "l3-peak", "c3"})


def _exact() -> Policy:
    # OR-Tools takes 0.2 s and 20 MB to import (`python -X importtime`, ru_maxrss). Other policies
    # need it only if limits on destinations cost more than the solver's gap.
    from spillway_optimizer.programmes.exact import Exact

    return Limited(Tailed(Exact()))


REGISTRY: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "round-robin": RoundRobin,
        "local": Local,
        "failover": Failover,
        MOSTLY_LOCAL: MostlyLocal,
        "static": Static,
        "waterfall": Waterfall,
        "waterfall-central": WaterfallCentral,
        "dealer": Dealer,
        "l3": lambda: Feedback(weights.by_l3),
        "l3-peak": lambda: Feedback(weights.by_l3_peak),
        "c3": lambda: Feedback(weights.by_c3),
        SPILLWAY: lambda: Limited(Tailed(Fast())),
        EXACT: _exact,
    }
)

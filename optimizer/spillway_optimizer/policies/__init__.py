"""The policies by name. Each baseline states its source in its module's docstring.

An instance may remember its previous answer (Waterfall, Dealer). Keep one instance while a policy
is followed. Create a new one for an answer that must not depend on earlier ones.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from spillway_optimizer.policies.dealer import Dealer
from spillway_optimizer.policies.failover import Failover
from spillway_optimizer.policies.local import Local
from spillway_optimizer.policies.round_robin import RoundRobin
from spillway_optimizer.policies.static import Static
from spillway_optimizer.policies.waterfall import Waterfall
from spillway_optimizer.policies.waterfall_central import WaterfallCentral
from spillway_optimizer.problem.solution import Policy
from spillway_optimizer.solvers.fast import Fast

SPILLWAY = "spillway"

REGISTRY: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "round-robin": RoundRobin,
        "local": Local,
        "failover": Failover,
        "static": Static,
        "waterfall": Waterfall,
        "waterfall-central": WaterfallCentral,
        "dealer": Dealer,
        SPILLWAY: Fast,
    }
)

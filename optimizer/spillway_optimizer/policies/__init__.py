"""The policies by name. A baseline states its source in its module's docstring."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from spillway_optimizer.policies.failover import Failover
from spillway_optimizer.policies.local import Local
from spillway_optimizer.policies.waterfall import Waterfall
from spillway_optimizer.solution import Policy
from spillway_optimizer.solvers.exact import Exact

SPILLWAY = "spillway"

REGISTRY: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {"local": Local, "failover": Failover, "waterfall": Waterfall, SPILLWAY: Exact}
)

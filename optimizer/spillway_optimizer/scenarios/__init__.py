"""The papers' examples as problems: the routing and the costs under each policy.

python -m spillway_optimizer.scenarios [--json]    prints scenario x policy

Every function is pure and returns problems. Each module states which numbers are the paper's and
which are derived.
"""

from spillway_optimizer.scenarios.build import Scenario
from spillway_optimizer.scenarios.fig2_fig3 import fig2, fig3a, fig3b
from spillway_optimizer.scenarios.fig4 import LATENCY_ONLY, fig4a, fig4b
from spillway_optimizer.scenarios.fig8 import fig8

ALL: tuple[Scenario, ...] = (
    Scenario("fig2", "SLATE 3.1", "how much: West 800 req/s, round trip 25 ms", lambda: (fig2(800.0, 25.0),)),
    Scenario("fig3a", "SLATE 3.2", "which clusters: OR and IOW overloaded", lambda: (fig3a(),)),
    Scenario("fig3b", "SLATE 3.2", "which clusters: UT, then IOW, then SC overloaded", fig3b),
    Scenario("fig4a", "SLATE 3.3", "where in the tree: DB missing in us-west", lambda: (fig4a(),)),
    Scenario(
        "fig4a-latency",
        "SLATE 3.3",
        "the same with latency as the objective",
        lambda: (fig4a(usd_per_ms=LATENCY_ONLY),),
    ),
    Scenario("fig4b", "SLATE 3.4", "which requests: heavy and light", lambda: (fig4b(),)),
    Scenario("fig8a", "SLATE 5.2.2", "Online Boutique, cart missing in UT", lambda: (fig8("a"),)),
    Scenario("fig8b", "SLATE 5.2.2", "Online Boutique, checkout missing in UT", lambda: (fig8("b"),)),
    Scenario(
        "fig8c", "SLATE 5.2.2, C.2", "Online Boutique, PA, EM and SH missing in UT", lambda: (fig8("c"),)
    ),
)

"""SLATE figures 4a and 4b (HotNets 5c and 5d): where in the call tree to route, and which requests.

From the paper, 4a: FR calls MP, which calls DB. DB is missing in us-west. Egress costs 0.02 $ per
GB. Per 1000 requests, Waterfall pays 2.21 $ for egress and SLATE 0.19 $. MP-DB traffic is
"(roughly) ten times" that of FR-MP.

From the paper, 4b: every service has a heavy and a light class. Waterfall's threshold counts both
alike.

Derived, 4a: the sizes, from the dollars, because those were measured: 2.21 $ / 1000 / 0.02 $ per GB
= 110.5 MB on MP-DB and 9.5 MB on FR-MP, a ratio of 11.6. With sizes of exactly ten to one
(`ratio=10`), the most that any routing can save is a factor of 10: every request of West must cross
once, and the cheapest place to cross is FR-MP.

Derived, both: round trip (not given), loads, curves, capacities, thresholds.
"""

from spillway_optimizer.problem.problem import Curve, Problem
from spillway_optimizer.scenarios.build import USD_PER_GB, Call, assemble, chain

_WEST_EAST = {("us-west", "us-east"): 60.0}
_BYTES_PER_USD = 1e9 / USD_PER_GB
MP_DB_BYTES = 2.21 / 1000 * _BYTES_PER_USD
FR_MP_BYTES = 0.19 / 1000 * _BYTES_PER_USD
_REQUEST_BYTES = 1_000.0
# Derived. At 1e-6 $ per ms, a crossing at MP-DB is worth 2.2 s of one request's time, so the bill
# decides. At 3e-2 $ it is worth 0.1 ms, so latency alone decides.
COST_FIRST = 1e-6
LATENCY_ONLY = 3e-2


def fig4a(ratio: float | None = None, usd_per_ms: float = COST_FIRST) -> Problem:
    """Figure 4a.

    `ratio`: ratio of the bytes of the two hops. None: the ratio that the paper's dollars imply.
    """
    large = MP_DB_BYTES if ratio is None else ratio * FR_MP_BYTES
    calls = [
        Call("FR", "MP", "/", _REQUEST_BYTES, FR_MP_BYTES - _REQUEST_BYTES),
        Call("MP", "DB", "/", _REQUEST_BYTES, large - _REQUEST_BYTES),
    ]
    return assemble(
        ("us-west", "us-east"),
        _WEST_EAST,
        calls,
        {("us-west", "FR", "/"): 300.0, ("us-east", "FR", "/"): 100.0},
        {("FR", "/"): Curve(0.5, 2.0), ("MP", "/"): Curve(20.0, 30.0), ("DB", "/"): Curve(2.0, 8.0)},
        {"FR": 2000.0, "MP": 1200.0, "DB": 1000.0},
        {"FR": 1800.0, "MP": 1080.0, "DB": 900.0},
        absent={("DB", "us-west")},
        usd_per_ms=usd_per_ms,
    )


def fig4b() -> Problem:
    """Figure 4b. H costs five times L in every service.

    West's 600 requests per second are a load of 990 L for capacities of 1000. The threshold of 580,
    which is right for a mix with fewer H, sends away 20 requests of both classes alike.
    """
    paths = ("/light", "/heavy")
    curves = {("gateway", path): Curve(0.0, 0.0) for path in paths}
    for service in ("FR", "MP", "DB"):
        curves[service, "/light"] = Curve(2.0, 4.0, 1.0)
        curves[service, "/heavy"] = Curve(10.0, 20.0, 5.0)
    return assemble(
        ("us-west", "us-east"),
        {("us-west", "us-east"): 25.0},
        chain("gateway", "FR", "MP", "DB", paths=paths),
        {
            ("us-west", "gateway", "/light"): 502.0,
            ("us-west", "gateway", "/heavy"): 98.0,
            ("us-east", "gateway", "/light"): 200.0,
            ("us-east", "gateway", "/heavy"): 20.0,
        },
        curves,
        {"gateway": 1e5, "FR": 1000.0, "MP": 1000.0, "DB": 1000.0},
        {"gateway": 1e5, "FR": 580.0, "MP": 580.0, "DB": 580.0},
    )

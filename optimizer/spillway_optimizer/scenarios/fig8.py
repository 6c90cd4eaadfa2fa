"""SLATE figure 8 (section 5.2.2, appendix C.2): Online Boutique with services missing in Utah.

From the paper: the services and their names (figure 15), four classes of the same load, and the
three cases of missing services in UT. Oregon is at three times its capacity, all others are below
theirs, and the total is below the aggregate. Also from the paper: the call tree of checkoutcart
(GW, FR, CH, then PA, SH and EM), and the four regions and their round trips. Waterfall's thresholds
are the capacity if every request were of the heaviest class (section 5.1). For case c, Waterfall
pays 2.64 times the egress of SLATE.

Derived: the classes besides addtocart and checkoutcart and their call trees (those of the public
Online Boutique demo), bytes, curves, weights and rates. The "capacity" in "three times its
capacity" is taken as Waterfall's threshold.
"""

from spillway_optimizer.problem.problem import Curve, Problem
from spillway_optimizer.scenarios.build import GCP, GCP_RTT_MS, Call, assemble

CASES = {"a": ("CA",), "b": ("CH",), "c": ("PA", "EM", "SH")}

# Derived, bytes of responses: pages from FR are large. Responses to CH are small except SH's quotes
# and EM's text.
_PAGE = {"/": 30e3, "/cart": 15e3, "/addtocart": 5e3, "/checkoutcart": 10e3}
_TREE = {
    "/": (("FR", "PR", 8e3), ("FR", "CA", 2e3)),
    "/cart": (("FR", "CA", 2e3), ("FR", "RE", 2e3), ("RE", "PR", 8e3), ("FR", "SH", 1e3)),
    "/addtocart": (("FR", "PR", 3e3), ("FR", "CA", 1e3)),
    "/checkoutcart": (
        ("FR", "CH", 4e3),
        ("CH", "CA", 2e3),
        ("CH", "PR", 3e3),
        ("CH", "PA", 4e3),
        ("CH", "SH", 4e3),
        ("CH", "EM", 12e3),
    ),
}
_FR_WEIGHT = {"/": 1.0, "/cart": 1.5, "/addtocart": 1.0, "/checkoutcart": 2.0}
_CURVE = {
    "CH": Curve(4.0, 8.0),
    "PA": Curve(1.0, 4.0),
    "RE": Curve(1.0, 3.0),
    "PR": Curve(0.5, 1.5),
    "CA": Curve(1.0, 2.0),
    "EM": Curve(1.0, 4.0),
    "SH": Curve(1.0, 2.0),
}
_PER_CLASS_RPS = {"OR": 200.0, "UT": 15.0, "IOW": 15.0, "SC": 15.0}
# Oregon's 800 requests per second are three times what it could serve if all requests were of the
# heaviest class.
_FR_CAPACITY = max(_FR_WEIGHT.values()) * len(_PAGE) * _PER_CLASS_RPS["OR"] / 3


def fig8(case: str) -> Problem:
    """Figure 8. `case`: a, b or c. Raises KeyError for another."""
    curves = {("GW", path): Curve(0.0, 0.0) for path in _PAGE}
    curves |= {("FR", path): Curve(2.0 * w, 4.0 * w, w) for path, w in _FR_WEIGHT.items()}
    calls = [Call("GW", "FR", path, 1e3, size) for path, size in _PAGE.items()]
    for path, tree in _TREE.items():
        calls += [Call(a, b, path, 1e3, size) for a, b, size in tree]
        curves |= {(callee, path): _CURVE[callee] for _, callee, _ in tree}
    behind = {"CH": 200.0, **dict.fromkeys(("PA", "EM", "SH", "RE", "CA", "PR"), 2000.0)}
    return assemble(
        GCP,
        GCP_RTT_MS,
        calls,
        {(c, "GW", path): rps for c, rps in _PER_CLASS_RPS.items() for path in _PAGE},
        curves,
        {"GW": 1e5, "FR": _FR_CAPACITY, **behind},
        {},  # no thresholds: Waterfall's default is the paper's
        absent={(service, "UT") for service in CASES[case]},
    )

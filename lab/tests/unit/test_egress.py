"""Bytes between clusters are separated by direction and priced. No Envoy is needed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_lab.stack import egress

STATS = json.dumps(
    {
        "stats": [
            {"name": "cluster.db|b.upstream_cx_tx_bytes_total", "value": 1_000_000_000},
            {"name": "cluster.db|b.upstream_cx_rx_bytes_total", "value": 1_500_000_000},
            {"name": "cluster.api|b|!c.upstream_cx_rx_bytes_total", "value": 500_000_000},
            {"name": "cluster.db|a.upstream_cx_rx_bytes_total", "value": 9},
            {"name": "cluster.spillway-app.upstream_cx_rx_bytes_total", "value": 9},
            {"histograms": {}},
        ]
    }
)


def test_only_what_leaves_the_cluster_is_counted() -> None:
    """Requests count towards the other cluster and answers from it.

    Local and static Envoy clusters do not count.
    """
    assert egress.parse(STATS, "a") == {("a", "b"): 1e9, ("b", "a"): 2e9}


def test_egress_is_priced_by_direction() -> None:
    """Requests cost the source's price and answers the destination's. The result is per hour."""
    result = egress.between({}, egress.parse(STATS, "a"), {("a", "b"): 0.02, ("b", "a"): 0.08}, seconds=1800)
    assert result.usd_per_hour == pytest.approx((0.02 + 2 * 0.08) * 2)


def test_egress_over_a_restart_is_never_negative() -> None:
    """A counter that starts again counts from zero."""
    assert egress.between({("a", "b"): 5e9}, {("a", "b"): 1e9}, {("a", "b"): 1.0}, 3600).usd_per_hour == 1.0


NAMES = st.text(alphabet="abc.-_", min_size=1, max_size=6)


@given(st.dictionaries(NAMES, st.integers(0, 10**15), min_size=1), NAMES)
def test_wire_bytes_are_egress_of_the_endpoints_cluster(sent: dict[str, int], own: str) -> None:
    """Bytes by cluster count between the pod's cluster and that one.

    Those of its own cluster, and of endpoints without a cluster, are no egress.
    """
    stats = [{"name": f"lab_wire.tx_bytes_total.cluster.{c}", "value": n} for c, n in sent.items()]
    stats += [{"name": "lab_wire.rx_bytes_total.cluster.other", "value": 7}]
    stats += [{"name": "lab_wire.tx_bytes_total.cluster.-", "value": 5}]
    stats += [{"name": "cluster.load-aware/db.upstream_cx_tx_bytes_total", "value": 9}]
    expected = {(own, c): float(n) for c, n in sent.items() if c not in (own, "-")}
    assert egress.parse(json.dumps({"stats": stats}), own) == expected | {("other", own): 7.0}

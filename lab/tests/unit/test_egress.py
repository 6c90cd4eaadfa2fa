"""Bytes between clusters are separated by direction and priced. No Envoy is needed."""

import json

import pytest
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

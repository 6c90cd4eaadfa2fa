"""Bytes between clusters are told apart by direction and priced, without an Envoy."""

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
    """Requests count towards the other cluster, answers from it; local and static clusters do not."""
    assert egress.parse(STATS, "a") == {("a", "b"): 1e9, ("b", "a"): 2e9}


def test_egress_is_priced_by_direction() -> None:
    """Requests are paid at the source's price and answers at the destination's, per hour."""
    result = egress.between({}, egress.parse(STATS, "a"), {("a", "b"): 0.02, ("b", "a"): 0.08}, seconds=1800)
    assert result.usd_per_hour == pytest.approx((0.02 + 2 * 0.08) * 2)


def test_egress_over_a_restart_is_never_negative() -> None:
    """Counters that start again count from zero."""
    assert egress.between({("a", "b"): 5e9}, {("a", "b"): 1e9}, {("a", "b"): 1.0}, 3600).usd_per_hour == 1.0

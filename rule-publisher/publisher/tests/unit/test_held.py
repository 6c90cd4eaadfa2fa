"""The rules by which the publisher assumes that relays route after a ruleset has expired."""

import time

import pytest
from spillway_contracts import hold, names, traffic_class
from spillway_publisher.rules import held

CLASS = "shop GET /items/{id}"
HOLD_S = names.VALUE_HOLD_SECONDS
SPREAD = {"south": 4000, "island": 6000}


@pytest.mark.parametrize(
    ("denied", "class_id", "nearest"),
    [
        ([], CLASS, "north"),
        (["north"], CLASS, "south"),
        (["north"], "", "south"),
        (["north"], "shop GET /other", "north"),
        (["north", "south"], CLASS, "island"),
    ],
)
def test_what_is_given_up_goes_to_the_nearest_cluster_that_is_not_denied(
    topology, make, denied, class_id, nearest
):
    """The own cluster comes first, then the order of round trips, like the relay's tiers."""
    next(link for link in topology.links if link.destination_cluster == "island").rtt_ms = 30
    now, age_s = time.time_ns(), HOLD_S * 5 // 8
    ruleset = make({"north": SPREAD}, now_ns=now - (age_s + 120) * 10**9)
    if denied:
        denial = ruleset.denials.add(source_cluster="north", clusters=denied)
        if class_id:
            denial.traffic_class.CopyFrom(traffic_class.parse(class_id))
    kept = hold.kept_steps(age_s * 1000, HOLD_S * 1000, "north", "web")
    (rule,) = held.rules({"north": ruleset}, topology, now)
    assert {d.cluster: d.weight for d in rule.destinations} == hold.decayed(SPREAD, nearest, kept)
    assert next(d for d in rule.destinations if d.cluster == "island").predicted_compute_ms == 60

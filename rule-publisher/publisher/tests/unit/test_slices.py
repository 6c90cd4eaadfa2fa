"""Cutting a ruleset into one slice per cluster, and joining the slices again."""

from spillway_contracts import slices


def test_each_cluster_gets_its_own_rules_and_all_classes(make):
    """A slice has its source cluster's rules, every class and the version, even without rules."""
    whole = make({"north": {"north": 5000, "south": 5000}, "south": {"south": 10_000}})
    parts = slices.cut(whole, ["south", "north", "island"], 12)
    assert list(parts) == ["island", "north", "south"]
    assert [[r.source_cluster for r in part.rules] for part in parts.values()] == [[], ["north"], ["south"]]
    assert all(
        p.version == 12 and p.id == whole.id and p.traffic_classes == whole.traffic_classes
        for p in parts.values()
    )


def test_joining_gives_back_the_whole(make):
    """What was cut can be restored from the bucket's history."""
    whole = make({"north": {"north": 5000, "south": 5000}, "south": {"south": 10_000}})
    joined = slices.join(slices.cut(whole, ["north", "south"], 12).values())
    whole.version = 12
    assert joined == whole

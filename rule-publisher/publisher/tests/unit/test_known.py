"""The rulesets that relays route by when the bucket does not have them."""

import time

from spillway_contracts import slices
from spillway_publisher.rules.known import Known

CLUSTERS = ["island", "north", "south"]
HALF = {"north": {"north": 5000, "south": 5000}}
NOW = time.time_ns()


def parts(make, version: int) -> dict:
    return slices.cut(make(HALF, now_ns=NOW - 10**12), CLUSTERS, version)


def test_the_newest_of_bucket_memory_and_checkpoint_is_in_force(make):
    """A key that is missing or has an older value changes nothing; a newer value does."""
    known = Known(CLUSTERS)
    new, old = parts(make, 7), parts(make, 5)
    assert known.in_force(new) == new
    assert known.in_force({}) == known.in_force(old) == new
    assert known.learn(make(HALF, version=6), NOW) == []
    assert known.learn(make(HALF, version=8), NOW) == CLUSTERS
    assert {r.version for r in known.in_force(new).values()} == {8}
    newest = parts(make, 9)
    assert known.in_force(newest) == newest
    known.forget()
    assert known.in_force({}) == {}


def test_a_checkpoint_is_held_from_when_it_was_learned(make):
    """An expired checkpoint may have been renewed for days.

    One that has not expired keeps its expiry.
    """
    for created_at, expires_at in ((NOW - 10**15, NOW), (NOW, NOW + 120 * 10**9)):
        known = Known(CLUSTERS)
        known.learn(make(HALF, now_ns=created_at, version=8), NOW)
        assert {r.expires_at.ToNanoseconds() for r in known.in_force({}).values()} == {expires_at}


def test_what_is_in_force_is_unknown_while_relays_serve_what_nobody_has(make):
    """It is also unknown before relays have had time to report.

    After that time, silence and version 0 mean that nothing is in force.
    """
    known = Known(CLUSTERS)
    assert "no relay of 'island' has reported" in known.unknown({}, False)
    assert "no relay of 'south' has reported" in known.unknown({"island": 0, "north": 0}, False)
    assert known.unknown({}, True) is None
    assert known.unknown(dict.fromkeys(CLUSTERS, 0), False) is None
    assert "relays of 'north' serve version 7" in known.unknown({"north": 7}, True)
    known.in_force({"north": parts(make, 5)["north"]})
    assert known.unknown({"north": 7}, False) is None, "the bucket has it"
    assert "relays of 'south' serve version 7" in known.unknown({"south": 7}, True)

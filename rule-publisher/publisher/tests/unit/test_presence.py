"""Placement: the union of what a cluster's relays report."""

import pytest
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_publisher.rules.in_flight import DESTINATIONS
from spillway_publisher.rules.presence import ENVOYS, HANDOVER_S, RELAYS, Presence, Unacceptable, check

NOW = 1_800_000_000.0
TTL_S = 10


def beat(
    relay: str = "", unnamed: dict[str, int] | None = None, version: int = 7, **envoys: list[int]
) -> Heartbeat:
    """`envoys`: hashes by service. `unnamed`: counts by service, as relays of 0.1.0 report them."""
    message = Heartbeat(cluster="north", ttl_seconds=TTL_S, relay=relay, ruleset_version=version)
    for service, hashes in envoys.items():
        message.services.add(service=service, envoys=hashes, connected_envoys=len(hashes))
    for service, count in (unnamed or {}).items():
        message.services.add(service=service, connected_envoys=count)
    return message


def placed(presence: Presence) -> dict[str, int]:
    union = presence.placement("north")
    assert union is not None
    return {s.service: s.connected_envoys for s in union.services}


def listen(presence: Presence, start: float, seconds: float, *beats: Heartbeat) -> float:
    """Lets each relay report every two seconds. Returns the time of the last heartbeat."""
    at = start
    while at < start + seconds:
        for message in beats:
            assert presence.hear(message, at)
        at += 2
    return at - 2


def test_two_relays_do_not_overwrite_each_other():
    """Services connected to one relay each are both placed.

    An Envoy connected to both counts once.
    """
    presence = Presence()
    listen(presence, NOW, 8, beat("a", cart=[1], web=[1, 2]), beat("b", shop=[1], web=[2, 3], version=5))
    assert placed(presence) == {"cart": 1, "web": 3, "shop": 1}
    union = presence.placement("north")
    assert union.ruleset_version == 5 and not union.relay and not any(s.envoys for s in union.services)
    assert presence.until == NOW + 6 + TTL_S


def test_a_relay_that_dies_takes_no_envoy_with_it():
    """Its Envoys count while they need time to notice.

    Once connected to the other relay, they count once. Those that never return are forgotten after
    HANDOVER_S.
    """
    presence = Presence()
    last = listen(presence, NOW, 8, beat("a", web=[1, 2]), beat("b", web=[3]))
    dead = listen(presence, last + 2, 20, beat("b", web=[3]))
    assert placed(presence) == {"web": 3}
    listen(presence, dead + 2, 6, beat("b", web=[3, 1]))
    assert placed(presence) == {"web": 3}
    listen(presence, last + HANDOVER_S, 4, beat("b", web=[3, 1]))
    assert placed(presence) == {"web": 2}


def test_an_envoy_that_moves_between_living_relays_is_placed_throughout():
    """While it reconnects, neither relay names it. It counts for the time to live and no longer."""
    presence = Presence()
    last = listen(presence, NOW, 8, beat("a", web=[1]), beat("b"))
    at = listen(presence, last + 2, 8, beat("a"), beat("b"))
    assert placed(presence) == {"web": 1}
    listen(presence, at + 2, 4, beat("a"), beat("b"))
    assert placed(presence) == {}


def test_a_silence_of_all_relays_ages_no_envoy():
    """After the bus was away, the first relay to report does not hide the others' Envoys."""
    presence = Presence()
    listen(presence, NOW, 8, beat("a", cart=[1]), beat("b", web=[2]))
    listen(presence, NOW + 300, 4, beat("a", cart=[1]))
    assert placed(presence) == {"cart": 1, "web": 1}
    listen(presence, NOW + 304, HANDOVER_S, beat("a", cart=[1]))
    assert placed(presence) == {"cart": 1}


def test_nothing_is_placed_before_every_relay_has_had_its_turn():
    """The first heartbeats that a publisher receives may all come from one relay."""
    presence = Presence()
    presence.hear(beat("a", cart=[1]), NOW)
    assert presence.placement("north") is None
    presence.hear(beat("b", web=[1]), NOW + 1)
    assert presence.placement("north") is None
    presence.hear(beat("a", cart=[1]), NOW + 5)
    assert placed(presence) == {"cart": 1, "web": 1}


def test_heartbeats_of_the_previous_version_count_without_names():
    """Relays of 0.1.0 send counts and no name. The last count of each service is used."""
    presence = Presence()
    listen(presence, NOW, 8, beat(unnamed={"cart": 2}), beat(unnamed={"web": 3}), beat("c", web=[9]))
    assert placed(presence) == {"cart": 2, "web": 4}


def test_an_older_heartbeat_changes_nothing():
    presence = Presence()
    last = listen(presence, NOW, 8, beat("a", web=[1]))
    assert not presence.hear(beat("a", cart=[1]), last - 1)
    assert placed(presence) == {"web": 1}


def test_relays_of_a_cluster_are_bounded():
    """One more relay is refused while all report, and replaces one that is silent."""
    presence = Presence()
    for n in range(RELAYS):
        presence.hear(beat(f"r{n}"), NOW + n / 100)
    with pytest.raises(Unacceptable, match="at most 16 are allowed") as refused:
        presence.hear(beat("late"), NOW + 1)
    assert refused.value.reason == "relays"
    assert presence.hear(beat("late"), NOW + TTL_S)
    assert len(presence.relays) == RELAYS and "r0" not in presence.relays


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ttl_seconds": 0}, "ttl"),
        ({"ttl_seconds": 2**32 - 1}, "ttl"),
        ({"relay": "a b"}, "relay"),
        ({"relay": "a" * 254}, "relay"),
    ],
)
def test_odd_values_are_refused_by_key(change, reason):
    """A placement that never expires, and names that no metric should contain."""
    message = beat("a")
    for key, value in change.items():
        setattr(message, key, value)
    with pytest.raises(Unacceptable) as refused:
        check(message)
    assert refused.value.reason == reason


def test_names_of_envoys_are_bounded():
    check(beat("a", web=list(range(ENVOYS))))
    with pytest.raises(Unacceptable, match="8193 in all"):
        check(beat("a", web=list(range(ENVOYS)), cart=[1]))


def test_a_placement_says_the_longest_hold_of_the_relays_that_report():
    """Rules may steer as long as any relay holds them.

    If one relay does not report its hold, the placement has none.
    """
    presence = Presence()
    for n, (relay, hold) in enumerate([("a", 0), ("b", 600), ("a", 0), ("b", 600)]):
        presence.hear(Heartbeat(cluster="west", relay=relay, ttl_seconds=10, hold_seconds=hold), 10.0 + 3 * n)
    assert presence.placement("west").hold_seconds == 600
    presence.hear(Heartbeat(cluster="west", relay="c", ttl_seconds=10), 20.0)
    assert not presence.placement("west").HasField("hold_seconds")
    with pytest.raises(Unacceptable, match="hold_seconds"):
        check(Heartbeat(cluster="west", relay="a", ttl_seconds=10, hold_seconds=30 * 24 * 3600 + 1))


def _with_pods(relay: str, pods: int | None, ready: int) -> Heartbeat:
    message = beat(relay, web=[1, 2])
    if pods is not None:
        message.services[0].pods, message.services[0].ready_pods = pods, ready
    return message


def _pods(presence: Presence) -> tuple[int, int] | None:
    [web] = presence.placement("north").services
    return (web.pods, web.ready_pods) if web.HasField("pods") else None


def test_pods_are_those_of_the_newest_report_and_are_not_added():
    """Two relays read the same API. One that knows no pods takes nothing away."""
    presence = Presence()
    listen(presence, NOW, 8, _with_pods("a", 4, 4), _with_pods("b", 4, 3))
    assert _pods(presence) == (4, 3)
    last = listen(presence, NOW + 8, 8, _with_pods("a", 4, 0), _with_pods("b", None, 0))
    assert _pods(presence) == (4, 0)
    listen(presence, last + 2, 20, _with_pods("b", None, 0))
    assert _pods(presence) is None


def test_pods_that_cannot_be_are_refused():
    with pytest.raises(
        Unacceptable, match="pods 3, ready_pods 4; must be both absent, or ready_pods at most pods"
    ):
        check(_with_pods("a", 3, 4))
    half = beat("a", web=[1])
    half.services[0].ready_pods = 0
    with pytest.raises(Unacceptable):
        check(half)
    check(_with_pods("a", 0, 0))


def calling(message: Heartbeat, service: str, envoys: int, **calls: int) -> Heartbeat:
    """Adds calls in flight of `service` to the service db, by destination cluster."""
    source = message.calls_in_flight.add(service=service, reporting_envoys=envoys)
    for cluster, count in calls.items():
        source.destinations.add(service="db", cluster=cluster, calls=count)
    return message


def in_flight(presence: Presence) -> dict[str, tuple[int, dict[str, int]]]:
    union = presence.placement("north")
    assert union is not None
    return {
        c.service: (c.reporting_envoys, {d.cluster: d.calls for d in c.destinations})
        for c in union.calls_in_flight
    }


def test_calls_in_flight_add_up_over_the_relays_that_report():
    """An Envoy may report to another relay than the one that serves its routes."""
    presence = Presence()
    a = calling(beat("a", web=[1, 2]), "web", 1, south=3, north=2**32 - 1)
    b = calling(calling(beat("b"), "web", 1, south=4, north=9), "cart", 1)
    last = listen(presence, NOW, 8, a, b)
    assert in_flight(presence) == {"web": (2, {"south": 7, "north": 2**32 - 1}), "cart": (1, {})}
    listen(presence, last + 2, TTL_S + 2, calling(beat("b"), "web", 1, south=1))
    assert in_flight(presence) == {"web": (1, {"south": 1})}


def test_relays_that_know_no_calls_in_flight_leave_them_unknown():
    presence = Presence()
    listen(presence, NOW, 8, beat("a", web=[1]))
    assert in_flight(presence) == {}


def test_a_heartbeat_with_too_many_destinations_is_rejected():
    message = calling(beat("a"), "web", 1, **{f"c{i}": 1 for i in range(DESTINATIONS - 1)})
    check(message)
    calling(message, "cart", 1)
    with pytest.raises(Unacceptable, match="4097 services and destinations"):
        check(message)

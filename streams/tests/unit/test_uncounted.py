"""Services that have never sent counters: how long their silence is unknown."""

from google.protobuf import json_format
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_streams.boards.placement import Placement
from spillway_streams.boards.uncounted import HOLD_S, Uncounted
from spillway_streams.process.counters import Counters

T0 = 1_700_000_000
COUNTED, SILENT, RARE = ("west", "counted"), ("west", "silent"), ("west", "rare")


class World:
    """One cluster, in which one service sends counters."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.placement, self.uncounted = Placement(self.counters), Uncounted(self.counters)

    def at(
        self, now: float, services: tuple[str, ...] | None, sending=(COUNTED,), owned: bool = True
    ) -> None:
        """services: those in the heartbeat; None: there is no heartbeat."""
        made = Heartbeat(cluster="west")
        for service in services or ():
            made.services.add(service=service, connected_envoys=1)
        text = None if services is None else json_format.MessageToJson(made).encode()
        self.placement.take({"west": text}, T0 + now)
        self.uncounted.take(self.placement, sending, lambda _: owned, T0 + now)


ALL = ("counted", "silent", "rare")


def test_a_service_that_gets_a_request_now_and_then_does_not_flap():
    """It sends no counters. After its first span, spans decide: between two it has no requests."""
    world = World()
    world.at(0, ALL)
    assert not world.uncounted.is_idle(RARE)
    world.uncounted.spans_arrived([RARE])
    for now in range(1, 30):
        world.at(now, ALL)
        assert world.uncounted.is_idle(RARE) and not world.uncounted.is_idle(SILENT)


def test_only_a_heartbeat_without_the_service_begins_anew():
    """Without a heartbeat, time goes on, and sent counters stay known. Returning pods are new."""
    world = World()
    world.at(0, ALL)
    world.at(HOLD_S - 1, None)
    assert not world.uncounted.is_idle(SILENT)
    world.at(HOLD_S, None)
    assert world.uncounted.is_idle(SILENT)
    world.at(HOLD_S + 1, None, sending=())
    assert not world.uncounted.is_idle(COUNTED)
    world.at(HOLD_S + 2, ("counted",))
    world.at(HOLD_S + 3, ALL)
    assert not world.uncounted.is_idle(SILENT)
    assert world.counters["services_without_counters_taken_for_idle"] == 2


def test_what_has_sent_counters_is_never_idle_by_silence_and_time_counts_only_where_it_would_be_heard():
    """A rebalance loses its counters. A worker without the partition does not observe it."""
    world = World()
    world.at(0, ALL)
    world.at(2 * HOLD_S, ALL, sending=())
    assert not world.uncounted.is_idle(COUNTED) and world.uncounted.is_idle(SILENT)
    world.at(2 * HOLD_S + 1, ALL, sending=(), owned=False)
    world.at(2 * HOLD_S + 2, ALL, sending=())
    assert not world.uncounted.is_idle(SILENT) and not world.uncounted.is_idle(COUNTED)


def test_where_no_proxy_of_the_cluster_sends_counters_silence_is_no_requests():
    world = World()
    world.at(0, ALL, sending=(("east", "counted"),))
    assert world.uncounted.is_idle(SILENT)

"""The connected Envoys by the placement, and when a new Envoy's counters are expected."""

from google.protobuf import json_format
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_streams.boards.placement import Placement
from spillway_streams.process.counters import Counters

PLACE = ("west", "shop")


def _heartbeat(**services: int) -> bytes:
    made = Heartbeat(cluster="west")
    for service, count in services.items():
        made.services.add(service=service, connected_envoys=count)
    return json_format.MessageToJson(made).encode()


def test_an_envoy_counts_once_it_is_connected_for_a_while_and_is_gone_at_once():
    """Its counters take some seconds. An Envoy that leaves again before does not count."""
    placement = Placement(Counters())
    for now, connected, expected in [
        (0, 2, 2), (1, 3, 2), (10, 3, 2), (11, 4, 4), (12, 3, 3), (13, 4, 3), (14, 3, 3), (22, 4, 3), (24, 4, 3),
    ]:  # fmt: skip
        placement.take({"west": _heartbeat(shop=connected)}, now)
        assert placement.connected(*PLACE) == expected, now


def test_a_cluster_whose_relays_are_silent_is_not_one_without_envoys():
    """Without a heartbeat nothing is known. A service that a heartbeat leaves out has no Envoys."""
    placement = Placement(Counters())
    assert placement.connected(*PLACE) is None and not placement.names("west")
    placement.take({"west": _heartbeat(stock=1, gone=0), "east": None}, 0)
    assert placement.connected(*PLACE) == placement.connected("west", "gone") == 0
    assert placement.services() == [("west", "stock")] and placement.has("west", "stock")
    assert placement.connected("east", "stock") is None and placement.names("west")
    for texts in ({"west": None}, {}):
        placement.take({"west": _heartbeat(stock=1)}, 1)
        placement.take(texts, 2)
        assert placement.connected("west", "stock") is None and placement.services() == []


def test_a_service_that_appears_has_its_envoys_after_a_while():
    placement = Placement(Counters())
    for now, expected in ((0, 0), (10, 0), (11, 0), (20, 0), (21, 1)):
        placement.take({"west": _heartbeat(stock=1, **({"shop": 1} if now > 10 else {}))}, now)
        assert placement.connected(*PLACE) == expected
    assert placement.has(*PLACE)


def test_a_placement_that_cannot_be_read_is_unknown_and_counted():
    counters = Counters()
    placement = Placement(counters)
    for n, text in enumerate(
        (
            b"",
            b"[]",
            b"\xff",
            b'{"services": 1}',
            _heartbeat(shop=2)[:-1],
            b'{"cluster": "east"}',
            b'{"cluster": "west", "services": 1}',
        ),
        start=1,
    ):
        placement.take({"west": text}, 0)
        assert placement.connected(*PLACE) is None and counters["placement_unreadable"] == n

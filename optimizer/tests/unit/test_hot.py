"""Values in Redis that cannot be read are unknown, not zero.

One unreadable key hides no other.
"""

from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError, ResponseError
from spillway_contracts import names
from spillway_optimizer.clients import hot
from spillway_optimizer.inputs.unknown import unknowns

WRONG = ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
DEMAND = {"web GET /x": '{"at": 99, "rps": 40, "failed_share": 0, "duration_ms": 1}'}


class _Redis:
    """A Redis with these replies by key.

    Other hashes are empty, and other heartbeats list no services.
    """

    def __init__(self, replies):
        self.replies, self.asked = replies, []

    @asynccontextmanager
    async def pipeline(self, transaction):
        yield self

    def hgetall(self, key):
        self.asked.append(self.replies.get(key, {}))

    def get(self, key):
        self.asked.append(self.replies.get(key, "{}"))

    async def execute(self, raise_on_error):
        assert not raise_on_error
        return self.asked


def key(name: str, cluster: str) -> str:
    return getattr(names, f"REDIS_KEY_{name}").format(cluster=cluster)


async def read(replies):
    return await hot.boards(_Redis({key("DEMAND", "east"): DEMAND, **replies}), ("west", "east"))


@pytest.mark.parametrize("name", ["LOAD", "DEMAND", "UNKNOWN"])
async def test_a_board_of_another_type_makes_its_cluster_unknown_and_no_other(name):
    found = await read({key(name, "west"): WRONG})
    why = unknowns(found, ("west", "east"), 100.0, 15.0)
    assert set(why.clusters) == {"west"} and why.clusters["west"].startswith("WRONGTYPE")
    assert found.demand["east"]["web GET /x"].rps == 40


async def test_an_entry_that_cannot_be_read_makes_its_service_unknown():
    """If the entry were left out, it would count as no load.

    That would also be so where streams state that the service is known.
    """
    known = {"web": '{"at": 99, "reason": ""}'}
    found = await read(
        {key("DEMAND", "west"): {"web GET /x": "{", "no class": "{"}, key("UNKNOWN", "west"): known}
    )
    why = unknowns(found, ("west", "east"), 100.0, 15.0)
    assert set(why.services) == {("web", "west")} and why.clusters == {}
    assert "known until" not in why.services["web", "west"]


async def test_a_placement_and_a_network_of_another_type_are_absent():
    found = await read({key("PLACEMENT", "west"): WRONG, names.REDIS_KEY_NETWORK: WRONG})
    assert found.placement["west"] is None and found.network == {}


async def test_a_server_that_is_away_is_no_unknown_board():
    with pytest.raises(ConnectionError):
        await read({key("LOAD", "west"): ConnectionError("away")})


ROUTE = '{"at": %d, "rps": 5, "success_rate": 1, "p50_ms": 1, "p99_ms": null, "in_flight": 0.1}'


async def test_outcomes_of_routes_leave_out_what_is_old_or_cannot_be_read():
    """An old entry is of a route that fell silent. A wrong one is named and hides no other."""
    fields = {
        "db GET /x\tweb\teast": ROUTE % 100,
        "db GET /x\tweb\twest": ROUTE % 90,
        "db GET /y\tweb\twest": "{",
        "no route": ROUTE % 100,
    }
    found = await hot.outcomes(_Redis({key("ROUTE", "west"): fields}), ("west", "east"))
    assert found.at == 100
    assert {route: list(seen) for route, seen in found.outcomes.items()} == {
        ("west", "web", "db GET /x"): ["east"]
    }
    assert len(found.malformed) == 2


async def test_outcomes_that_may_not_be_read_are_named_and_stop_nothing():
    """Before an upgrade of Redis's users, the optimizer has no right to these keys."""
    refused = ResponseError("NOPERM no permissions to access a key")
    found = await hot.outcomes(_Redis({key("ROUTE", "west"): refused}), ("west", "east"))
    assert found.outcomes == {} and found.at is None
    assert found.malformed == (f"{key('ROUTE', 'west')}: {refused}",)


async def test_calls_in_flight_are_those_of_the_placements():
    """They are unknown when the placement has expired or cannot be read."""
    placement = """{"cluster": "west", "services": [{"service": "web", "connected_envoys": 2}],
        "calls_in_flight": [{"service": "web", "reporting_envoys": 2,
            "destinations": [{"service": "db", "cluster": "east", "calls": 9}]}]}"""
    for text, expected in ((placement, {("west", "web"): {("db", "east"): 9.0}}), (None, {}), ("{", {})):
        found = await hot.outcomes(_Redis({key("PLACEMENT", "west"): text}), ("west", "east"))
        assert found.in_flight == expected and found.malformed == ()

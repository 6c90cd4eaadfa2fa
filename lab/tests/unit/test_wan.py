"""Delays and repairs are computed correctly. No Toxiproxy is needed."""

import pytest
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.stack.wan import WanLink, load_plan, repairs


def link(name: str = "a-to-b", rtt_ms: float = 25) -> WanLink:
    return WanLink(
        name=name,
        listen="127.0.0.1:1",
        upstream="127.0.0.1:2",
        source_cluster="a",
        destination_cluster="b",
        rtt_ms=rtt_ms,
    )


@pytest.mark.parametrize("rtt_ms", [0, 1, 2, 25, 66])
def test_both_ways_sum_to_the_round_trip(rtt_ms: int) -> None:
    """The two delays add up to the link's round-trip time, and no delay of zero is set."""
    delays = [toxic["attributes"]["latency"] for toxic in link(rtt_ms=rtt_ms).toxics().values()]
    assert sum(delays) == rtt_ms
    assert all(delay > 0 for delay in delays)


def present(*links: WanLink) -> dict:
    """Returns the answer of GET /proxies when all is as planned."""
    return {link.name: link.proxy() | {"toxics": list(link.toxics().values())} for link in links}


def test_nothing_to_repair() -> None:
    """A plan that is in force needs no changes, and unknown proxies are left alone."""
    assert repairs([link()], present(link()) | {"stranger": {"toxics": []}}) == []


def test_restart_forgets_toxics_and_they_come_back() -> None:
    """A Toxiproxy that restarts with its file has proxies without toxics.

    One that restarts without its file has neither. The repairs restore what is missing.
    """
    bare = {link().name: link().proxy() | {"toxics": []}}
    assert [path for _, path, _ in repairs([link()], bare)] == ["/proxies/a-to-b/toxics"] * 2
    assert [path for _, path, _ in repairs([link()], {})] == ["/proxies", *["/proxies/a-to-b/toxics"] * 2]


def test_changed_delay_is_put_right() -> None:
    """A delay that differs from the plan is updated in place."""
    changes = repairs([link(rtt_ms=50)], present(link(rtt_ms=25)))
    assert [(path, body["attributes"]["latency"]) for _, path, body in changes] == [
        ("/proxies/a-to-b/toxics/wan-upstream", 25),
        ("/proxies/a-to-b/toxics/wan-downstream", 25),
    ]


def test_plan_file_mistakes_are_named(tmp_path) -> None:
    """A broken wan.json gives an error that names file and key."""
    path = tmp_path / "wan.json"
    path.write_text('[{"name": "x"}]')
    with pytest.raises(InvalidInput, match=r"wan\.json: 0\.listen: Field required"):
        load_plan(path)
    path.write_text("{")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_plan(path)

"""Requests and settings that the lab passes to the load generator."""

import base64
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_lab.load import load
from spillway_lab.load.targets import apportion, targets
from spillway_lab.render import pods
from spillway_lab.scenario import scenario
from spillway_lab.scenario.behaviour import Keys
from spillway_lab.scenario.errors import LoadError
from spillway_lab.scenario.scenario import Request

LAB = Path(__file__).resolve().parents[2]
SCENARIO = scenario.load(LAB / "scenarios/four-clusters.yaml")
LAYOUT = pods.plan(SCENARIO, 21_000)


def request(share: float = 1.0, **changes) -> Request:
    return Request(service="s", method="GET", path="/x/{id}", share=share, **changes)


@pytest.mark.parametrize("shares", [[1], [1, 1, 1], [0.9, 0.1], [1000, 1], [1000, 1, 0]])
def test_shares_are_kept(shares: list[float]) -> None:
    """Targets match the shares within one request, and only a share of 0 is left out."""
    given = apportion(shares, 1000)
    assert [n >= 1 for n in given] == [share > 0 for share in shares]
    assert all(abs(n - 1000 * share / sum(shares)) <= 1 for n, share in zip(given, shares, strict=True))


def test_users_of_a_cluster_may_have_shares_of_their_own() -> None:
    """In one scenario, the west sends 35 checkouts with 4 carts, and central 5 with 100."""
    loaded = scenario.load(LAB / "scenarios/contention.yaml")
    layout = pods.plan(loaded, 20_000)
    for cluster, expected in (("west", 35 / 39), ("central", 5 / 105)):
        urls = [json.loads(line)["url"] for line in targets(loaded, layout, cluster)]
        assert sum(url.endswith("/checkout") for url in urls) / len(urls) == pytest.approx(
            expected, abs=0.002
        )


def test_targets_enter_at_the_clusters_own_pods() -> None:
    """Each cluster's users call their own cluster's entry, with distinct path values.

    The same arguments give the same targets.
    """
    for cluster in SCENARIO.clusters:
        lines = targets(SCENARIO, LAYOUT, cluster, count=200)
        entry = SCENARIO.document.requests[0].service
        ports = {int(json.loads(line)["url"].split(":")[2].split("/")[0]) for line in lines}
        assert ports == set(LAYOUT.entry_ports(entry, cluster))
        assert len({json.loads(line)["url"] for line in lines}) > 150
        assert "{" not in "".join(json.loads(line)["url"] for line in lines)
        assert lines == targets(SCENARIO, LAYOUT, cluster, count=200)
        assert Counter(json.loads(line)["header"]["Host"][0] for line in lines) == {entry: 200}


def asked(cluster: str, keys: dict, count: int | None = None) -> Counter[int]:
    """Returns how often the users of a cluster ask for each key."""
    application = SCENARIO.application.model_copy(update={"keys": {"id": Keys.model_validate(keys)}})
    lines = targets(SCENARIO.model_copy(update={"application": application}), LAYOUT, cluster, count)
    return Counter(int(json.loads(line)["url"].rsplit("/", 1)[1]) for line in lines)


def test_users_ask_for_their_clusters_keys() -> None:
    """Each cluster's users ask for every key of its own range, and for no other, about alike."""
    first, second = SCENARIO.clusters[:2]
    keys = {"first": 0, "count": 100, "clusters": {second: {"first": 50, "count": 200}}}
    for cluster, expected in ((first, range(100)), (second, range(50, 250))):
        found = asked(cluster, keys)
        assert set(found) == set(expected)
        assert found.total() == 20 * len(expected)
        assert max(found.values()) <= 20 + 6 * math.sqrt(20)


@given(exponent=st.floats(0.1, 3), count=st.integers(2, 2000), first=st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_popular_keys_are_asked_for_as_often_as_zipf_says(exponent: float, count: int, first: int) -> None:
    """The first key's share is 1 / sum of rank ** -exponent, and all keys are of the range."""
    cluster, lines = SCENARIO.clusters[0], 4000
    popularity = {"distribution": "zipf", "exponent": exponent}
    found = asked(cluster, {"first": first, "count": count, "popularity": popularity}, lines)
    share = 1 / sum(rank**-exponent for rank in range(1, count + 1))
    assert found[first] / lines == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / lines) + 1e-3)
    assert min(found) >= first and max(found) < first + count


def test_request_bodies_have_the_declared_size() -> None:
    """A request with a body is sent with the declared number of bytes."""
    with_body = SCENARIO.document.requests[0].model_copy(update={"request_bytes": 777})
    changed = SCENARIO.model_copy(
        update={"document": SCENARIO.document.model_copy(update={"requests": [with_body]})}
    )
    line = targets(changed, LAYOUT, SCENARIO.clusters[0], count=1)[0]
    assert len(base64.b64decode(json.loads(line)["body"])) == 777


def test_command_keeps_the_loop_open() -> None:
    """There are enough workers if every request of a whole timeout hangs."""
    attack = load.Attack("a", [], 130, 20)
    arguments = load.command(attack, load.Generator(Path("/x"), timeout_s=10), Path("/t"), Path("/r"))
    workers = next(int(a.split("=")[1]) for a in arguments if a.startswith("-max-workers="))
    assert workers >= 130 * 10
    assert "-rate=130/1s" in arguments
    assert "-rate=90/1m" in load.command(
        load.Attack("a", [], 1.5, 20), load.Generator(Path("/x")), Path("/t"), Path("/r")
    )


def test_no_generator_is_a_clear_error(tmp_path: Path) -> None:
    """A missing program and an entry without pods give errors that name them."""
    with pytest.raises(LoadError, match="no-such-program: cannot be started"):
        load.run([load.Attack("a", ["{}"], 1, 1)], load.Generator(tmp_path, "no-such-program"), "x")
    with pytest.raises(LoadError, match="no targets for a"):
        load.run([load.Attack("a", [], 1, 1)], load.Generator(tmp_path), "x")
    assert load.run([load.Attack("a", [], 0, 1)], load.Generator(tmp_path), "x") == {}

"""Caches, contention and shares of clusters in simulations, and what the oracle knows of them."""

from pathlib import Path

import numpy as np
import pytest
from spillway_lab.scenario import scenario as scenarios
from spillway_lab.scenario.application import Application
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.loads import Segment
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator import known_model, native_form
from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.indices import Indices, check
from spillway_lab.simulator.learned import Learned
from spillway_lab.simulator.observed import Period, period
from spillway_lab.simulator.world import World

LAB = Path(__file__).parents[2]
CACHE = scenarios.load(LAB / "scenarios/cache-overlap.yaml")
CONTENTION = scenarios.load(LAB / "scenarios/contention.yaml")
RECORDS = "cache GET /records/{id}"
CHECKOUT, CART = "cart POST /cart/checkout", "cart POST /cart"


def _run(scenario: Scenario, rps: dict[str, float], rules: dict | None = None) -> tuple[Engine, Period]:
    """Runs 200 s of constant load, after 100 s that are not looked at."""
    engine = Engine(World(Indices(scenario)), seed=1)
    engine.set_weights(engine.indices.weights(rules or {}))
    engine.load({cluster: [Segment(300.0, rate, rate)] for cluster, rate in rps.items()}, poisson=True)
    engine.run(100.0)
    engine.counts(), engine.ended()
    engine.run(360.0)
    return engine, period(engine.world, engine.counts(), engine.ended())


def _with(scenario: Scenario, service: str, **changed: object) -> Scenario:
    """Returns the scenario with keys of a service's first endpoint changed."""
    raw = scenario.application.model_dump(mode="json", exclude_none=True)
    raw["services"][service]["endpoints"][0] |= changed
    return scenario.model_copy(update={"application": Application.model_validate(raw)})


def _keys(west: int, south: int) -> Scenario:
    """Returns the cache's scenario with the first keys of west's and south's users."""
    raw = CACHE.application.model_dump(mode="json", exclude_none=True)
    raw["keys"]["id"]["clusters"] |= {
        "west": {"first": west, "count": 100}, "south": {"first": south, "count": 100},
    }  # fmt: skip
    return CACHE.model_copy(update={"application": Application.model_validate(raw)})


@pytest.mark.parametrize(("first", "hits"), [(0, 1.0), (100, 0.5)])
def test_requests_hit_where_users_ask_for_the_same_keys(first, hits):
    """A cache of 100 keys that are asked for alike: one of two requests hits when there are 200."""
    to_west = {("central", "gateway", RECORDS): {"west": 1}}
    engine, seen = _run(_keys(first, 500), {"central": 4, "west": 4, "south": 1}, to_west)
    k, west = engine.indices.classes.index(RECORDS), engine.indices.clusters.index("west")
    assert seen.hits[k, west] / seen.served[k, west] == pytest.approx(hits, abs=0.03)
    assert seen.exclusive_ms[k, west] / seen.served[k, west] == pytest.approx(75 * (1 - hits), rel=0.2, abs=1)


def test_a_hit_takes_its_own_time_in_a_slower_cluster_too():
    hit = {"distribution": "constant", "mean_ms": 4}
    scenario = _with(_keys(0, 0), "cache", cache={"key": "id", "capacity": 100, "hit": hit})
    raw = scenario.document.model_dump(mode="json", exclude_none=True)
    raw["clusters"]["west"]["services"] = {"cache": {"speed": 0.5}}
    document = type(scenario.document).model_validate(raw)
    engine, seen = _run(scenario.model_copy(update={"document": document}), {"west": 5, "south": 5})
    k = engine.indices.classes.index(RECORDS)
    mean_ms = seen.exclusive_ms[k] / np.maximum(seen.served[k], 1)
    assert mean_ms[engine.indices.clusters.index("west")] == pytest.approx(8, rel=0.1)
    assert mean_ms[engine.indices.clusters.index("south")] == pytest.approx(4, rel=0.1)


def test_a_class_is_slowed_by_the_rate_of_its_rival_in_the_same_cluster():
    """In west, 4 carts/s slow a checkout by 4 %; central's 100 carts/s double its work."""
    engine, seen = _run(CONTENTION, {"west": 8, "central": 105})
    index = engine.indices
    checkout = index.classes.index(CHECKOUT)
    [ms_west, ms_central] = [
        seen.exclusive_ms[checkout, c] / seen.served[checkout, c]
        for c in (index.clusters.index("west"), index.clusters.index("central"))
    ]
    # A checkout alone takes 80 ms. Little waits for one of four workers.
    assert ms_west == pytest.approx(80, rel=0.1)
    assert 160 * 0.95 < ms_central < 160 * 1.6


def test_users_of_each_cluster_send_their_own_mix():
    """Of west's users, 35 of 39 check out; of central's, 5 of 105."""
    engine, seen = _run(CONTENTION, {"west": 20, "central": 20})
    index = engine.indices
    asked = seen.asked[
        [index.classes.index(f"frontend {each}") for each in ("POST /cart/checkout", "POST /cart")]
    ]
    share = dict(zip(index.clusters, asked[0] / asked.sum(axis=0), strict=True))
    assert share["west"] == pytest.approx(35 / 39, abs=0.03) and share["central"] == pytest.approx(
        5 / 105, abs=0.03
    )


def test_the_oracle_has_one_curve_for_all_caches_and_does_not_know_of_contention():
    """A curve of the mean over hits and misses, with the capacity that follows from it."""
    world = World(Indices(CACHE))
    cold, warm = known_model.tables(world), known_model.tables(world, {RECORDS: 0.25})
    [[before], [after]] = [
        [row for row in found["curves"] if row["class"] == RECORDS] for found in (cold, warm)
    ]
    at_rest = [row["a_ms"] + row["b_ms"] for row in (before, after)]
    assert at_rest == pytest.approx([75, 75 / 4], rel=0.1)
    served = [
        {row["capacity_rps"] for row in found["capacities"] if row["service"] == "cache"}
        for found in (cold, warm)
    ]
    assert [value * 4 for value in served[0]] == pytest.approx(list(served[1]))
    curves = {row["class"]: row for row in known_model.tables(World(Indices(CONTENTION)))["curves"]}
    assert curves[CHECKOUT]["norm_weight"] == pytest.approx(10) and curves[CART]["norm_weight"] == 1


def test_a_cached_answer_saves_the_calls_of_its_endpoint():
    scenario = _with(_keys(0, 0), "gateway", cache={"key": "id", "capacity": 100})
    ratios = known_model.tables(World(Indices(scenario)), {"gateway GET /records/{id}": 0.1})["call_ratios"]
    assert [row["calls_per_request"] for row in ratios] == pytest.approx([0.1])


def test_what_caches_have_shown_is_learned_unless_curves_are_frozen():
    """They begin empty. A cache that always hits is taken for one that misses one of 100."""
    engine, seen = _run(_keys(0, 0), {"west": 10, "south": 10})
    tables = [Learned(engine.world, frozen).after(seen, changed=False) for frozen in (False, True)]
    [learned, frozen] = [
        next(row["a_ms"] + row["b_ms"] for row in each["curves"] if row["class"] == RECORDS)
        for each in tables
    ]
    assert learned == pytest.approx(0.75, rel=0.1) and frozen == pytest.approx(75, rel=0.1)


def test_a_key_that_a_caller_does_not_hand_on_is_named():
    """The live emulator would draw another key for every call."""
    raw = CACHE.application.model_dump(mode="json", exclude_none=True)
    raw["services"]["gateway"]["endpoints"][0]["path"] = "/records"
    scenario = CACHE.model_copy(update={"application": Application.model_validate(raw)})
    message = r"cache GET /records/\{id\} has the key 'id' of a cache, which this path does not hand on"
    with pytest.raises(InvalidInput, match=message):
        check(scenario)


def test_a_variable_without_keys_has_the_generator_s_numbers():
    raw = CACHE.application.model_dump(mode="json", exclude_none=True)
    del raw["keys"]
    index = Indices(CACHE.model_copy(update={"application": Application.model_validate(raw)}))
    [[first, *_]] = native_form.keys(index)
    assert (first[0], len(first[1])) == (1, 99_999)

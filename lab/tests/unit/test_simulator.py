"""The simulator's Python side: indices, the known model, events, rounds and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from spillway_lab.commands import cli
from spillway_lab.report import results
from spillway_lab.report.statistics import METRICS
from spillway_lab.scenario import queues
from spillway_lab.scenario import scenario as scenarios
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.events import Event
from spillway_lab.scenario.loads import Segment
from spillway_lab.scenario.scenario import Scenario
from spillway_lab.simulator import known_model, rounds
from spillway_lab.simulator.control import Seen
from spillway_lab.simulator.engine import Engine
from spillway_lab.simulator.indices import Indices, check
from spillway_lab.simulator.observed import Boards, Period, period
from spillway_lab.simulator.world import World, not_simulated

LAB = Path(__file__).parents[2]
SCENARIO = scenarios.load(LAB / "scenarios/two-clusters.yaml")
INDEX = Indices(SCENARIO)
BACKEND = "backend GET /items/{id}"
TO_EAST = {("west", "frontend", BACKEND): {"east": 10_000}}


def _ran(scenario: Scenario, rules: dict, west: float, seconds: float = 200.0, seed: int = 1) -> Engine:
    engine = Engine(World(Indices(scenario)), seed)
    engine.set_weights(engine.indices.weights(rules))
    engine.load({"west": [Segment(seconds, west, west)]}, poisson=True)
    engine.run(seconds + 60)
    return engine


def test_rules_send_calls_and_their_bytes_where_they_say():
    """All of the west's calls to the backend go east, over 25 ms, and their answers come back."""
    engine = _ran(SCENARIO, TO_EAST, west=20)
    counts, ended = engine.counts(), engine.ended()
    k = INDEX.classes.index(BACKEND)
    assert counts.arrived[k].tolist() == [0, len(ended.ok)] and ended.ok.all()
    answer = SCENARIO.application.services["backend"].endpoints[0].response_bytes
    assert counts.bytes[1, 0] == answer * len(ended.ok) and counts.bytes[0, 1] == 0
    assert ended.latency_ms.min() > 25


def test_times_of_a_chain_with_little_load_are_the_service_times():
    """3 + 8 + 40 ms without queues; the mean of 4 000 requests is within 5 %."""
    ended = _ran(SCENARIO, {}, west=20).ended()
    assert ended.latency_ms.mean() == pytest.approx(51, rel=0.05)


def test_recorded_requests_are_sent_at_their_times():
    """Their kinds and clusters are those given. Times that go back and unknown kinds are named."""
    engine = Engine(World(INDEX), 1)
    engine.set_weights(INDEX.weights({}))
    engine.replay({"west": [(1.0, 0), (2.5, 0)], "east": [(2.0, 0)]})
    engine.run(np.inf)
    ended = engine.ended()
    assert sorted(zip(ended.at_s.tolist(), ended.cluster.tolist(), strict=True)) == [(1, 0), (2, 1), (2.5, 0)]
    engine = Engine(World(INDEX), 1)
    with pytest.raises(ValueError, match=r"requests\[0\]: not in the order of time; allowed: ascending"):
        engine.replay({"west": [(2.0, 0), (1.0, 0)]})
    with pytest.raises(ValueError, match=r"requests\[1\]: kind 1; allowed: 0 to 0"):
        engine.replay({"east": [(2.0, 1)]})


def test_the_same_seed_gives_the_same_requests():
    first, again, other = (_ran(SCENARIO, {}, west=20, seed=seed).ended().latency_ms for seed in (3, 3, 4))
    assert first.tolist() == again.tolist() != other.tolist()


def test_the_same_seed_gives_the_same_arrivals_under_other_rules():
    """All calls stay, or all go east: users send the same, and see other latencies."""
    stayed, moved = (_ran(SCENARIO, rules, west=20, seed=3).ended() for rules in ({}, TO_EAST))
    assert sorted(stayed.at_s.tolist()) == sorted(moved.at_s.tolist())
    assert sorted(stayed.latency_ms.tolist()) != sorted(moved.latency_ms.tolist())


def test_every_repetition_of_every_run_has_a_seed_of_its_own():
    """Seeds that follow each other have no round in common."""
    assert len({rounds._seed(seed, repetition) for seed in range(5) for repetition in range(5)}) == 25
    assert rounds._seed(1, 2) == rounds._seed(1, 2)


def test_a_known_model_has_the_measured_load_and_the_true_capacity():
    """Demand is what entered per second; a backend of four workers of 40 ms serves 100."""
    engine = _ran(SCENARIO, TO_EAST, west=20)
    document = _document(World(INDEX), engine, 260.0)
    entry = document["demand"]["west"]["gateway GET /items/{id}"]
    assert entry["rps"] == pytest.approx(20 * 200 / 260, rel=0.1) and not document["demand"]["east"]
    found = {(row["service"], row["cluster"]): row["capacity_rps"] for row in document["capacities"]}
    assert found["backend", "west"] == pytest.approx(100)
    assert document["network"]["west>east"]["mean_ms"] == 25


def _document(world: World, engine: Engine, now_s: float) -> dict:
    boards = Boards(INDEX).add(period(world, engine.counts(), engine.ended()), known_model.BEGAN + now_s)
    return known_model.document(known_model.tables(world), boards, world, now_s)


def test_events_change_delays_replicas_and_services():
    """A raised delay and a slowed service are in the world, and in the requests that follow."""
    world = World(INDEX)
    engine = Engine(world, 1)
    raised = {"destination_cluster": "east", "both_ways": True, "add_rtt_ms": 75}
    assert world.change(Event.model_validate({"at_seconds": 1, "link": raised})) == []
    assert world.rtt_ms.tolist() == [[0, 100], [100, 0]]
    slowed = {"service": "backend", "cluster": "east", "speed": 0.5, "delay_ms": 30}
    [place] = world.change(Event.model_validate({"at_seconds": 1, "service": slowed}))
    more = {"service": "backend", "cluster": "west", "pods": 2}
    world.change(Event.model_validate({"at_seconds": 1, "replicas": more}))
    rows = known_model.tables(world)["capacities"]
    found = {(row["service"], row["cluster"]): row["capacity_rps"] for row in rows}
    assert found["backend", "east"] == pytest.approx(50) and found["backend", "west"] == pytest.approx(200)
    engine.follow_place(*place)
    engine.follow_links()
    engine.set_weights(INDEX.weights(TO_EAST))
    engine.load({"west": [Segment(100.0, 5, 5)]}, poisson=True)
    engine.run(160)
    # 3 + 8 + 100 of network + 80 + 30 ms
    assert engine.ended().latency_ms.mean() == pytest.approx(221, rel=0.1)


def _three_clusters(links: dict[str, float], backend: list[str]) -> Scenario:
    """West's users, one-way links from west with these round trips, and where the backend is."""
    raw = json.loads(SCENARIO.document.model_dump_json(exclude_none=True))
    raw["clusters"] = {name: {"region": name} for name in ("west", "north", "east")}
    raw["links"] = [
        {"source_cluster": "west", "destination_cluster": to, "rtt_ms": rtt_ms, "egress_usd_per_gb": 0.02}
        for to, rtt_ms in links.items()
    ]
    raw["placement"] = {name: {"west": {}} for name in raw["placement"]}
    raw["placement"]["backend"] = {cluster: {} for cluster in backend}
    raw["load"] = {"measure": {"warm_up_seconds": 0, "measured_seconds": 1, "rps": {"west": 1}}}
    document = type(SCENARIO.document).model_validate(raw)
    return SCENARIO.model_copy(update={"document": document})


@pytest.mark.parametrize(
    ("links", "backend", "rule", "expected"),
    [
        ({"north": 10, "east": 5}, ["west", "north", "east"], {}, [1, 0, 0]),  # its own cluster
        ({"north": 10, "east": 5}, ["north", "east"], {}, [0, 0, 1]),  # the nearest
        ({"north": 5, "east": 5}, ["north", "east"], {}, [0, 0, 1]),  # the first by name
        ({"north": 10}, ["north", "east"], {}, [0, 1, 0]),  # the nearest that has a link
        ({"north": 10}, ["west", "north", "east"], {"east": 5, "north": 3, "west": 2}, [2, 3, 0]),
        ({"north": 10}, ["west", "east"], {"north": 4, "east": 6}, [1, 0, 0]),  # nothing is left
        ({"north": 10}, ["east"], {"east": 1}, [0, 0, 0]),
    ],
)
def test_calls_go_where_the_relay_would_send_them(links, backend, rule, expected):
    """Shares of clusters without pods or link fall to the others, or else to the nearest."""
    index = Indices(_three_clusters(links, backend))
    weights = np.array(index.weights({("west", "frontend", BACKEND): rule} if rule else {}))
    route = index.routes.index(("frontend", BACKEND))
    assert weights.reshape(-1, 3, 3)[route, 0].tolist() == expected


def test_without_a_link_there_is_no_way():
    """Round trips are infinite, and calls that have nowhere else to go fail."""
    scenario = _three_clusters({"north": 10}, ["east"])
    assert World(Indices(scenario)).rtt_ms[0].tolist() == [0, 10, np.inf]
    ended = _ran(scenario, {}, west=5).ended()
    assert len(ended.ok) > 500 and not ended.ok.any()


def test_a_link_in_one_direction_carries_the_answers_too():
    """As in the lab, the whole round trip is the caller's, whatever the way back is declared as."""
    ended = _ran(_three_clusters({"north": 200}, ["north"]), {}, west=5, seconds=1000).ended()
    assert ended.ok.all() and ended.latency_ms.mean() == pytest.approx(251, rel=0.02)


def test_what_is_not_simulated_is_named():
    """Policies without rules of the optimizer, lost clusters, and paths that no endpoint has."""
    with pytest.raises(InvalidInput, match="'envoy-load-aware' is not simulated; allowed: local"):
        rounds.check(SCENARIO, ["local", "envoy-load-aware"])
    lost = Event.model_validate({"at_seconds": 1, "cluster": {"cluster": "east", "reachable": False}})
    assert "events[0].cluster: not simulated" in next(not_simulated([lost]))
    changed = SCENARIO.application.model_dump(mode="json")
    changed["services"]["frontend"]["endpoints"][0]["calls"][0][0]["path"] = "/items/7"
    application = type(SCENARIO.application).model_validate(changed)
    message = r"GET /items/7 of 'backend' is no endpoint of it; allowed .* word for word: GET /items/{id}$"
    with pytest.raises(InvalidInput, match=message):
        check(SCENARIO.model_copy(update={"application": application}))


def test_a_constant_load_is_simulated_for_longer():
    """It is ten minutes, after one. With events, or where it is longer already, it stays."""
    measure = rounds.lengthened(SCENARIO, 600).document.load.measure
    assert (measure.seconds, measure.warm_up_seconds) == (600, 60) and measure.first_rps["west"] == 110
    assert rounds.lengthened(SCENARIO, 5) is SCENARIO
    event = Event.model_validate(
        {"at_seconds": 1, "replicas": {"service": "backend", "cluster": "east", "pods": 2}}
    )
    document = SCENARIO.document.model_copy(update={"events": [event]})
    changed = SCENARIO.model_copy(update={"document": document})
    assert rounds.lengthened(changed, 600) is changed


def test_a_round_reads_and_changes_things_in_order():
    """Looks every 10 s, and the events in between, from the warm-up to the last answer."""
    at = [
        Event.model_validate(
            {"at_seconds": 2.5, "service": {"service": "backend", "cluster": "east", "speed": 2}}
        )
    ]
    document = SCENARIO.document.model_copy(update={"events": at})
    stops = rounds._stops(SCENARIO.model_copy(update={"document": document}), 10.0)
    measure = SCENARIO.document.load.measure
    end = measure.warm_up_seconds + measure.seconds
    assert stops == sorted(stops) and measure.warm_up_seconds + 2.5 in stops and stops[-1] > end in stops


def _file(folder: Path, measure: dict) -> Path:
    """Writes the scenario with another load, and one round of each policy."""
    raw = json.loads(SCENARIO.document.model_dump_json(exclude_none=True))
    raw |= {
        "application": str(LAB / "applications/chain.yaml"),
        "repetitions": 1,
        "load": {"measure": measure},
    }
    file = folder / "two.yaml"
    file.write_text(json.dumps(raw))
    return file


def _simulate(file: Path, *arguments: str) -> None:
    given = ["simulate", "--scenario", str(file), "--out", str(file.parent), *arguments]
    assert cli.main(given, standalone_mode=False) in (None, 0)


def test_the_optimizer_s_rules_beat_staying_local_in_an_overloaded_cluster(tmp_path: Path):
    """The whole way: simulated load, the optimizer's plan, rules, results in the common format.

    West is offered 130 % of its backend. Waterfall sends away what is beyond 90 % of it, which is a
    threshold that 40 s of simulated queues tell apart from the best routing.
    """
    short = {"warm_up_seconds": 20, "measured_seconds": 40, "rps": {"west": 130, "east": 15}}
    file = _file(tmp_path, short)
    raw = json.loads(file.read_text())
    raw["placement"]["backend"] = {cluster: {"threshold_rps": 90} for cluster in ("west", "east")}
    file.write_text(json.dumps(raw))
    _simulate(file, "--seed", "5", "--seconds", "40", "--json")
    run, samples = results.read(tmp_path / "two")
    mean = {each.policy: float(s.latency_ms.mean()) for each, s in zip(run.rounds, samples, strict=True)}
    assert run.kind == "simulated" and run.facts["curves"].startswith("oracle")
    assert mean["spillway"] < mean["waterfall"] < mean["local"]
    assert all(abs(len(s) - 145 * 40) < 5 * (145 * 40) ** 0.5 for s in samples)


def _period(arrived: float, failed: float) -> Period:
    """All classes of all clusters, in 10 s. Users ask for the first."""
    zero = np.zeros((len(INDEX.classes), len(INDEX.clusters)))
    asked, pairs = zero.copy(), np.zeros((len(INDEX.clusters),) * 2)
    asked[0] = arrived
    return Period(
        10.0, zero + arrived, zero, zero + failed, zero, zero, asked, zero, zero, zero, pairs, pairs
    )


@pytest.mark.parametrize(
    ("arrived", "failed", "same"),
    # Of two counts of 1000, the difference has a standard deviation of 45.
    [(1000, 0, True), (1100, 0, True), (1300, 0, False), (1000, 3, True), (1000, 60, False)],
)
def test_rules_are_planned_anew_when_demand_or_failures_change(arrived, failed, same):
    """Chance changes both a little. Rules from an overload must not stay when it is over."""
    before, now = Seen.of(_period(1000, 0)), Seen.of(_period(arrived, failed))
    assert now.resembles(before) is same and before.resembles(now) is same


def test_classes_of_a_service_wait_for_the_same_workers():
    """A light request waits behind heavy ones, as long as the mix of both says."""
    scenario = scenarios.load(LAB / "scenarios/heavy-light.yaml")
    world = World(Indices(scenario))
    curves = {row["class"]: row for row in known_model.tables(world)["curves"]}
    light, heavy = (curves[f"backend GET /{each}/{{id}}"] for each in ("light", "heavy"))
    at_80 = [row["a_ms"] / 0.2 + row["b_ms"] for row in (light, heavy)]
    work = world.indices.work["backend"]
    wait = queues.wait_ms(4, work.mean_ms, work.cv2, np.array([0.8]))[0]
    assert at_80 == pytest.approx([8 + wait, 80 + wait], rel=0.2)
    assert heavy["norm_weight"] == pytest.approx(10)


def test_known_curves_are_those_of_slower_clusters():
    """All clusters have a quarter of the speed, so an idle backend needs 160 ms."""
    world = World(Indices(scenarios.load(LAB / "scenarios/moved-delay.yaml")))
    found = {row["class"]: row for row in known_model.tables(world)["curves"]}
    assert found[BACKEND]["a_ms"] + found[BACKEND]["b_ms"] == pytest.approx(160, rel=0.1)


def test_known_curves_are_those_of_clusters_with_more_workers():
    """16 workers at 80 % wait an eighth of what the application's 4 would."""
    world = World(Indices(scenarios.load(LAB / "scenarios/slow-cluster.yaml")))
    [row] = [row for row in known_model.tables(world)["curves"] if row["class"] == BACKEND]
    wait = queues.wait_ms(16, 40.0, 1.0, np.array([0.8]))[0]
    assert row["a_ms"] / 0.2 + row["b_ms"] == pytest.approx(40 + wait, rel=0.1)


def test_a_policy_that_is_named_twice_is_simulated_once(tmp_path: Path):
    """In the order in which they were named first. The results' command runs the same again."""
    once = {"warm_up_seconds": 0, "measured_seconds": 2, "rps": {"west": 10}}
    named = ["--policy", "waterfall", "--policy", "local", "--policy", "waterfall"]
    _simulate(_file(tmp_path, once), "--seconds", "3", *named)
    run = results.read_run(tmp_path / "two")
    assert [each.policy for each in run.rounds] == ["waterfall", "local"]
    assert run.command.endswith("--seed 1 --seconds 3 --policy waterfall --policy local")


def test_the_command_of_results_has_the_path_from_the_repository_s_root(tmp_path: Path, monkeypatch):
    """So that a published result says nothing of the machine, and the command runs anywhere."""
    file = _file(tmp_path, {"warm_up_seconds": 0, "measured_seconds": 2, "rps": {"west": 10}})
    monkeypatch.setattr("spillway_lab.commands.simulate.ROOT", tmp_path)
    _simulate(file, "--seconds", "2", "--policy", "local")
    assert "simulate --scenario two.yaml --seed" in results.read_run(tmp_path / "two").command


def test_figures_of_rounds_without_requests_are_unknown(tmp_path: Path, capsys):
    """They are null, neither 0 nor a number that JSON does not have."""
    idle = {"warm_up_seconds": 0, "measured_seconds": 20, "rps": {"west": 0}}
    file = _file(tmp_path, idle)
    _simulate(file, "--seconds", "1", "--policy", "local", "--json")
    figures = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert set(figures["local"]) == set(METRICS) and set(figures["local"].values()) == {None}
    run, [samples] = results.read(tmp_path / "two")
    assert run.rounds[0].egress_usd_per_hour is None and len(samples) == 0
    _simulate(file, "--seconds", "1", "--policy", "local")
    assert capsys.readouterr().out.splitlines()[-1].split() == ["local", *["-"] * 5]

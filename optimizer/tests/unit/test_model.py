import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, topology
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.inputs.smoothing import smooth
from spillway_optimizer.model import model

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "contracts" / "golden"
# West is near its backend's capacity, and east is idle. Format of contracts/golden/3_model.json.
DOCUMENT = json.loads((Path(__file__).parent / "data" / "model.json").read_text())
TOPOLOGY = topology.load(GOLDEN / "topology.yaml")
NOW = 1767225631.0
BACKEND = "backend GET /items/{id}"


def _inputs(change=None) -> telemetry.Telemetry:
    document = json.loads(json.dumps(DOCUMENT))
    if change:
        change(document)
    return telemetry.from_document(document)


def test_golden_files_are_fresh():
    """4_problem.json and 5_ruleset.json are what the present code makes of 3_model.json."""
    spec = importlib.util.spec_from_file_location("golden", ROOT / "optimizer" / "tests" / "golden.py")
    golden = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(golden)
    for name, text in golden.make().items():
        made, kept = json.loads(text), json.loads((GOLDEN / name).read_text())
        assert _near(made, kept), f"{name} is stale: run optimizer/tests/golden.py"


def _near(made, kept) -> bool:
    """Returns whether both are equal, except for the last digits of numbers.

    Another processor may round these differently.
    """
    if isinstance(made, dict) and isinstance(kept, dict):
        return made.keys() == kept.keys() and all(_near(made[key], kept[key]) for key in made)
    if isinstance(made, list) and isinstance(kept, list):
        return len(made) == len(kept) and all(map(_near, made, kept))
    return made == pytest.approx(kept, rel=1e-6) if isinstance(made, float) else made == kept


def test_a_model_becomes_a_problem():
    """Demand, ratios, curves, capacities, network times and latency price have the right units."""
    built = model.build(_inputs(), TOPOLOGY, NOW)
    assert built.refusals == () and built.notes == ()
    problem = built.problem
    assert problem.demand_rps["west", "gateway GET /items/{id}"] == 450.0
    assert problem.capacity_rps["backend", "west"] == 500.0
    assert problem.rtt_ms["west", "east"] == pytest.approx(25.0, rel=1e-3)
    assert problem.rtt_ms["west", "west"] == pytest.approx(0.2, rel=1e-3)
    assert problem.usd_per_ms == pytest.approx(1e-7)
    assert problem.threshold_rps["backend", "west"] == 400.0
    assert built.window.id == "1767225600000-1767225630000"


@pytest.mark.parametrize(
    ("measured", "used"), [(0.6, 0.6), (0.05, 0.25), (1.0, 1.0), (None, 1.0), (float("nan"), 1.0)]
)
def test_calls_count_by_the_share_that_their_caller_waits_for(measured, used):
    """Unknown is all of them, and never less than a quarter: times change with the destination."""

    def change(document: dict) -> None:
        for row in document["call_ratios"]:
            row["wait_share"] = measured if row["class"] == BACKEND else 1.0

    problem = model.build(_inputs(change), TOPOLOGY, NOW).problem
    [edge] = [edge for edge in problem.edges if edge.target == BACKEND]
    assert edge.wait_share == used
    k = problem.layout.classes.index(BACKEND)
    assert problem.layout.wait[k] == pytest.approx(used)


def test_stale_demand_is_refused_by_name():
    """A board older than allowed is no demand, and the message contains its age."""
    built = model.build(_inputs(), TOPOLOGY, NOW + 60)
    assert built.problem is None
    assert any("'west' is 61 s old" in reason for reason in built.refusals)


def test_no_demand_is_refused():
    """An empty board is not treated as a problem without demand."""
    built = model.build(_inputs(lambda d: d.update(demand={})), TOPOLOGY, NOW)
    assert built.refusals == ("demand: no board has requests",)


def test_a_heavy_class_without_a_curve_is_refused_a_rare_one_is_constant():
    """The curve of a class that carries its service's load cannot be guessed.

    The curve of a class with 2 % of the load can.
    """

    def drop(d):
        d["curves"] = [row for row in d["curves"] if row["service"] != "backend"]

    built = model.build(_inputs(drop), TOPOLOGY, NOW)
    assert any(BACKEND in reason and "none" in reason for reason in built.refusals)

    def rare(d):
        d["call_ratios"].append(
            {**d["call_ratios"][1], "class": "backend GET /rare", "calls_per_request": 0.02}
        )
        for board in d["load"].values():
            board["backend GET /rare"] = {**board[BACKEND], "rps": 2.0, "exclusive_ms": 9.0}

    built = model.build(_inputs(rare), TOPOLOGY, NOW)
    assert built.problem.curves["backend GET /rare"].b_ms == 9.0
    assert any("backend GET /rare" in note and "constant at 9.0 ms" in note for note in built.notes)


def test_a_missing_capacity_is_taken_from_other_clusters_then_from_cpu():
    """A note says what was assumed. Without any source, the model is refused."""

    def east_only(d):
        d["capacities"] = [r for r in d["capacities"] if (r["service"], r["cluster"]) != ("backend", "west")]

    built = model.build(_inputs(east_only), TOPOLOGY, NOW)
    assert built.problem.capacity_rps["backend", "west"] == 500.0
    assert any("'backend' in 'west'" in note for note in built.notes)

    def none(d):
        d["capacities"] = [r for r in d["capacities"] if r["service"] != "backend"]

    built = model.build(_inputs(none), TOPOLOGY, NOW)
    assert built.problem.capacity_rps["backend", "east"] == pytest.approx(450 / 0.9)

    def blind(d):
        none(d)
        for board in d["load"].values():
            board[BACKEND]["cpu"] = None

    assert any(
        "capacities: none for 'backend'" in r for r in model.build(_inputs(blind), TOPOLOGY, NOW).refusals
    )


def test_network_time_is_measured_where_fresh_else_remembered():
    """A stale measurement is remembered (see test_network_times.py)."""

    def measured(d):
        d["network"]["west>east"]["mean_ms"] = 31.0
        d["network"]["east>west"]["at"] = NOW - 100

    problem = model.build(_inputs(measured), TOPOLOGY, NOW).problem
    assert problem.rtt_ms["west", "east"] == pytest.approx(31.0, abs=0.01)
    assert problem.rtt_ms["east", "west"] == pytest.approx(25.0, abs=0.01)


def test_placement_follows_heartbeats():
    """A service that leaves a cluster's heartbeat leaves the problem.

    This holds even if boards still show calls. A silent relay keeps the services of its last
    heartbeat, or the declared ones. Without any heartbeat, the model is refused.
    """
    services = frozenset({"gateway", "frontend", "backend"})
    left = {("backend", "east"): NOW}
    inputs = dataclasses.replace(
        _inputs(), placement={"west": services, "east": services - {"backend"}}, left=left
    )
    assert ("backend", "east") not in model.build(inputs, TOPOLOGY, NOW).problem.placement
    inputs = dataclasses.replace(_inputs(), placement={"west": services, "east": None})
    built = model.build(inputs, TOPOLOGY, NOW)
    assert ("backend", "east") in built.problem.placement
    assert any("no heartbeat from 'east'" in note for note in built.notes)
    inputs = dataclasses.replace(_inputs(), placement={"west": None, "east": None})
    (refusal,) = model.build(inputs, TOPOLOGY, NOW).refusals
    assert refusal.startswith("nothing is known now: placement: no heartbeat from 'east'")
    last = dataclasses.replace(
        inputs,
        placement={"west": services, "east": None},
        placed_last={"east": services - {"backend"}},
        left=left,
    )
    built = model.build(last, TOPOLOGY, NOW)
    assert ("backend", "east") not in built.problem.placement
    assert any("no heartbeat from 'east', its last one is assumed" in note for note in built.notes)


def test_a_cycle_in_telemetry_is_refused_and_named():
    """Contradictory call ratios stop the solve, but not the process."""

    def cycle(d):
        row = d["call_ratios"][1]
        d["call_ratios"].append({**row, "source_class": row["class"], "class": row["source_class"]})

    assert any("cycle" in reason for reason in model.build(_inputs(cycle), TOPOLOGY, NOW).refusals)


def test_a_topology_without_a_price_of_latency_is_refused():
    """The operator's trade-off between latency and egress has no default."""
    free = Topology()
    free.CopyFrom(TOPOLOGY)
    free.usd_per_ms_per_million_requests = 0
    assert any("usd_per_ms" in reason for reason in model.build(_inputs(), free, NOW).refusals)


def test_malformed_rows_are_left_out_and_named():
    """Only the malformed row is dropped. Its column and value are reported."""
    rows = [*DOCUMENT["curves"], {**DOCUMENT["curves"][0], "a_ms": float("nan")}, {"class": "x"}]
    good, bad = telemetry.read_rows(telemetry.CurveRow, rows)
    assert len(good) == len(DOCUMENT["curves"])
    assert "a_ms: nan" in bad[0] and "missing" in bad[1]


def test_an_unknown_spread_of_a_curve_is_none():
    """NaN, NULL and an absent column are unknown, not 0. A known spread of 0 is a number."""
    row = DOCUMENT["curves"][0]
    spreads = ({"sd_a_ms": float("nan")}, {"sd_a_ms": None}, {}, {"sd_a_ms": 0.0})
    good, bad = telemetry.read_rows(telemetry.CurveRow, [{**row, **spread} for spread in spreads])
    assert ([found.sd_a_ms for found in good], bad) == ([None, None, None, 0.0], ())
    _, bad = telemetry.read_rows(telemetry.CurveRow, [{**row, "sd_b_ms": float("inf")}])
    assert "sd_b_ms: inf" in bad[0]


def test_a_model_document_of_another_shape_is_refused():
    """The error names the missing key."""
    with pytest.raises(ContractError, match="curves"):
        telemetry.from_document({})


def test_smoothing_halves_noise_and_forgets_what_ended():
    """After one half-life, half of a step has arrived. A class without requests disappears."""
    key, gone = ("west", "a"), ("west", "b")
    assert smooth(None, {key: 100.0}, 5, 5) == {key: 100.0}
    assert smooth({key: 100.0, gone: 1e-3}, {key: 200.0}, 5, 5) == {key: 150.0}
    assert smooth({key: 100.0}, {key: 200.0}, 5, 0) == {key: 200.0}


def test_a_constant_part_below_zero_is_kept_as_far_as_latency_stays_above_it():
    """Several workers hide part of the queue, so a negative b is no error.

    L(0) = a + b is never below 0.
    """

    def short(d, b_ms):
        for row in d["curves"]:
            if row["class"] == BACKEND:
                row |= {"a_ms": 10.0, "b_ms": b_ms}

    assert model.build(_inputs(lambda d: short(d, -4.0)), TOPOLOGY, NOW).problem.curves[BACKEND].b_ms == -4.0
    assert (
        model.build(_inputs(lambda d: short(d, -40.0)), TOPOLOGY, NOW).problem.curves[BACKEND].b_ms == -10.0
    )


def test_an_old_board_says_nothing_of_a_class_without_a_curve():
    """Entries of a stopped worker remain on the board, but are no observation."""

    def stale(d):
        d["curves"] = [row for row in d["curves"] if row["class"] != BACKEND]
        for board in d["load"].values():
            board[BACKEND] = {**board[BACKEND], "at": NOW - 3600, "rps": 0.01}

    refusals = model.build(_inputs(stale), TOPOLOGY, NOW).refusals
    assert any(BACKEND in reason and "none" in reason for reason in refusals)

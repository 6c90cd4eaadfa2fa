"""Plans on the golden model: what-ifs, rules in force, and the texts of refusals."""

import argparse
import dataclasses
import io
import json
import re
import threading
import time
from pathlib import Path

import pytest
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import topology
from spillway_optimizer.clients import history
from spillway_optimizer.commands import plan_text, source_arguments, whatif_arguments
from spillway_optimizer.commands.plan import plan
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.problem.rules import RuleKey
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.sources import clickhouse, live, model_file
from spillway_optimizer.sources.errors import InputError, in_lines
from spillway_optimizer.sources.situation import now, situation
from spillway_optimizer.sources.told import Told

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
GATEWAY, FRONTEND, BACKEND = (f"{s} GET /items/{{id}}" for s in ("gateway", "frontend", "backend"))


@pytest.fixture
def told() -> Told:
    telemetry = model_file.read(GOLDEN / "3_model.json")
    declared = topology.load(GOLDEN / "topology.yaml")
    return Told("golden", telemetry, declared, model_file.as_of(telemetry))


def _what_if(*arguments: str):
    parser = argparse.ArgumentParser()
    whatif_arguments.add_arguments(parser)
    return whatif_arguments.of(parser.parse_args(arguments))


def _plan(told: Told, *arguments: str, policies=("local",)) -> dict:
    document = plan(situation(told, _what_if(*arguments)), policies, Progress())
    return json.loads(json.dumps(document))


def _demand(told: Told, *arguments: str) -> dict[str, float]:
    return _plan(told, *arguments)["size"]["demand_rps"]


def test_a_plan_measures_everything_by_the_optimum(told):
    """The plan contains only the requested policies and the optimum.

    `above_optimum` is the relative difference of the objectives. The ruleset is the whole ruleset
    of the optimum.
    """
    document = _plan(told, policies=("local", "round-robin"))
    rows = document["policies"]
    assert set(rows) == {"local", "round-robin", SPILLWAY}
    best = rows[SPILLWAY]["objective_usd_per_hour"]
    for row in (*rows.values(), document["now"]):
        assert row["above_optimum"] == pytest.approx(row["objective_usd_per_hour"] / best - 1)
    assert rows["round-robin"]["above_optimum"] > rows["local"]["above_optimum"] > 0
    assert 0 <= rows[SPILLWAY]["relative_gap"] < 1e-3 and rows["local"]["relative_gap"] is None
    assert document["ruleset"]["policy"] == SPILLWAY
    assert len(document["ruleset"]["rules"]) == len(rows[SPILLWAY]["rules"]) == 4


def test_without_rules_now_is_failover_and_with_rules_it_is_them(told):
    """Known rules are priced unchanged.

    A route fails over if it has no rule, or if its rule leads to a cluster that cannot serve it.
    """
    assert "failover" in _plan(told)["now"]["rules_from"]
    away = {("west", "gateway", FRONTEND): {"east": 10_000}}
    known = dataclasses.replace(told, in_force=away, in_force_from="version 7")
    document = _plan(known)
    assert document["now"]["rules_from"] == (
        "rules version 7; 3 of 4 routes have no rule that fits and fail over"
    )
    assert document["now"]["network_ms"] > 10
    astray = dataclasses.replace(
        told, in_force={("west", "gateway", FRONTEND): {"moon": 10_000}}, in_force_from="7"
    )
    of = situation(astray, _what_if())
    assert (now(of).shares == now(situation(told, _what_if())).shares).all()


def test_what_if_demand(told):
    """Demand is scaled first, and then set to absolute rates.

    A rate is for one class, or for the cluster in its proportions, and may be 0.
    """
    west, east = (told.telemetry.demand[c][GATEWAY].rps for c in ("west", "east"))
    assert _demand(told, "--scale", "2") == pytest.approx({"west": 2 * west, "east": 2 * east})
    assert _demand(told, "--scale", "west=0.5") == pytest.approx({"west": west / 2, "east": east})
    assert _demand(told, "--scale", "3", "--demand", "east=10") == pytest.approx(
        {"west": 3 * west, "east": 10}
    )
    assert _demand(told, "--demand", f"west:{GATEWAY}=77") == pytest.approx({"west": 77, "east": east})
    assert _demand(told, "--demand", "west=0") == pytest.approx({"west": 0, "east": east})


def test_demand_can_enter_where_none_was_seen(told):
    """With traces of one cluster, users of the other one are assumed to request the same mix."""
    one = dataclasses.replace(told.telemetry, demand={"west": told.telemetry.demand["west"]})
    document = _plan(dataclasses.replace(told, telemetry=one), "--demand", "east=50")
    assert document["size"]["demand_rps"]["east"] == pytest.approx(50)
    assert document["what_if"] == ["50 req/s enter in east"]


def test_a_what_if_far_from_the_present_is_no_contradiction(told):
    """Twenty times the load board's rate is a question, not a measurement.

    It is planned, and overloaded services are named.
    """
    document = _plan(told, "--scale", "20")
    assert any("of its capacity" in note for note in document["policies"][SPILLWAY]["notes"])


def test_what_if_a_service_is_not_there(told):
    """Without backend in west, its calls go to east, both now and under every policy."""
    document = _plan(told, "--without", "backend@west")
    for rules in (document["policies"]["local"]["rules"], document["policies"][SPILLWAY]["rules"]):
        used = {c for rule in rules if rule["class"] == BACKEND for c in rule["weights"]}
        assert used == {"east"}
    assert document["now"]["network_ms"] > _plan(told)["now"]["network_ms"] + 5
    beats = {c: frozenset({"gateway", "frontend", "backend"}) for c in ("west", "east")}
    live = dataclasses.replace(told, telemetry=dataclasses.replace(told.telemetry, placement=beats))
    same = _plan(live, "--without", "backend@west")["policies"][SPILLWAY]
    assert same["mean_latency_ms"] == pytest.approx(document["policies"][SPILLWAY]["mean_latency_ms"])
    nobody = dict.fromkeys(beats, frozenset())  # a mesh that only sends telemetry
    live = dataclasses.replace(told, telemetry=dataclasses.replace(told.telemetry, placement=nobody))
    same = _plan(live, "--without", "backend@west")["policies"][SPILLWAY]
    assert same["mean_latency_ms"] == pytest.approx(document["policies"][SPILLWAY]["mean_latency_ms"])


def test_what_if_a_cluster_is_drained(told):
    """Users still enter in the drained cluster, and their calls leave it."""
    rules = _plan(told, "--drain", "west")["policies"][SPILLWAY]["rules"]
    assert {cluster for rule in rules for cluster in rule["weights"]} == {"east"}


def test_what_if_capacity(told):
    """Half the capacity in one cluster sends more calls away.

    Without a cluster, the capacity applies to all clusters.
    """

    def local_share(*arguments: str) -> int:
        rules = _plan(told, *arguments)["policies"][SPILLWAY]["rules"]
        return sum(rule["weights"].get("west", 0) for rule in rules if rule["source_cluster"] == "west")

    assert local_share("--capacity", "backend@west=250") < local_share() - 500
    sound = {
        c: {k: dataclasses.replace(e, failed_share=0.0) for k, e in b.items()}
        for c, b in told.telemetry.load.items()
    }
    told = dataclasses.replace(told, telemetry=dataclasses.replace(told.telemetry, load=sound))
    document = _plan(told, "--capacity", "backend=5000", policies=("local",))
    assert document["policies"][SPILLWAY]["above_optimum"] == pytest.approx(0)
    assert document["policies"]["local"]["above_optimum"] < 0.02


@pytest.mark.parametrize(
    ("arguments", "reasons"),
    [
        (("--demand", "wset=5"), ["--demand: cluster: unknown 'wset'; closest: west"]),
        (("--scale", "moon=2"), ["--scale: cluster: unknown 'moon'; known: east, west"]),
        (("--demand", "west:frontent GET /x=5"), ["--demand: entry class: unknown 'frontent GET /x'"]),
        (("--without", "backend@moon"), ["--without: cluster: unknown 'moon'"]),
        (("--without", "bakcend@west"), ["--without: service: unknown 'bakcend'; closest: backend"]),
        (("--without", "gateway@west"), ["users enter at 'gateway' in 'west' (380.0 req/s)", "--demand west=0"]),
        (("--drain", "moon"), ["--drain: cluster: unknown 'moon'"]),
        (("--capacity", "db=5", "--scale", "x=1"), ["--capacity: service: unknown 'db'", "--scale: cluster: unknown 'x'"]),
    ],
)  # fmt: skip
def test_a_what_if_that_cannot_be_is_named_with_what_is_known(told, arguments, reasons):
    """All errors are reported together, each with its option, its value and the closest names."""
    with pytest.raises(InputError) as error:
        situation(told, _what_if(*arguments))
    for reason in reasons:
        assert reason in str(error.value)


def test_an_entry_can_be_moved(told):
    """The advice in the refusal of --without for an entry service works."""
    document = _plan(told, "--without", "gateway@west", "--demand", "west=0", "--demand", "east=300")
    assert document["size"]["demand_rps"] == pytest.approx({"west": 0, "east": 300})


@pytest.mark.parametrize(
    "arguments",
    [
        ("--demand", "west"),
        ("--demand", "west=-1"),
        ("--scale", "nan"),
        ("--capacity", "db=0"),
        ("--without", "db"),
        ("--demand", "=5"),
        ("--demand", "west:=5"),
        ("--scale", "=2"),
        ("--scale", "1e300"),
        ("--capacity", "=5"),
        ("--capacity", "db@=5"),
        ("--capacity", "db=1e300"),
    ],
)
def test_what_is_no_what_if_is_refused(capsys, arguments):
    """The error repeats the value and says what it must be."""
    with pytest.raises(SystemExit) as ended:
        _what_if(*arguments)
    assert ended.value.code == 2 and arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (lambda d: d.pop("curves"), ["x.json: curves: missing, must be a list of objects"]),
        (lambda d: d.update(curves=None, network=None), ["curves: null, must be a list", "network: null, must be"]),
        (lambda d: d["curves"].insert(1, 7), ["curves[1]: an int, must be an object"]),
        (lambda d: d.update(placements={}), ["placements: unknown; known: call_ratios, capacities, curves, demand, load,"]),
        (
            lambda d: d.update(placement={"west": ["gateway", None, 5], "east": "gateway"}),
            ["placement.west[1]: null, must be the name", "placement.west[2]: an int", "placement.east: a str, must be"],
        ),
        (lambda d: d.update(load=[]), ["x.json: load: a list, must be an object"]),
        (lambda d: d["demand"]["west"][GATEWAY].pop("rps"), [f"demand.west['{GATEWAY}'].rps: missing"]),
        (lambda d: d["demand"]["west"][GATEWAY].update(rps=-3), [f"demand.west['{GATEWAY}'].rps: -3, must be a number"]),
        (lambda d: d["demand"]["west"].update(nonsense={}), ["demand.west['nonsense']: "]),
        (
            lambda d: (d["network"]["west>east"].update(mean="5"), d.pop("capacities")),
            ["network['west>east'].mean: unknown; known: at, mean_ms, samples", "capacities: missing"],
        ),
    ],
)  # fmt: skip
def test_a_wrong_model_names_every_key(tmp_path, change, reasons):
    document = json.loads((GOLDEN / "3_model.json").read_text())
    change(document)
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as error:
        model_file.read(tmp_path / "x.json")
    for reason in reasons:
        assert reason in str(error.value)


@pytest.mark.parametrize("demand", [{}, {"west": {}, "east": {}}])
def test_a_model_without_demand_has_one_thing_wrong(tmp_path, demand):
    """Without a time of demand, nothing else can be judged."""
    document = json.loads((GOLDEN / "3_model.json").read_text()) | {"demand": demand}
    (tmp_path / "x.json").write_text(json.dumps(document))
    with pytest.raises(InputError) as error:
        model_file.read(tmp_path / "x.json")
    [line] = str(error.value).splitlines()
    assert "x.json: demand: empty; " in line


def test_a_model_that_is_no_json_is_named_with_line_and_column():
    with pytest.raises(InputError, match=r"^m:2:7: not JSON"):
        model_file.parse('{"a": 1,\n "b": }', "m")
    with pytest.raises(InputError, match=r"^m: nested too deep"):
        model_file.parse("[" * 100_000, "m")


def test_a_problem_that_cannot_be_stated_says_why_and_what_helps(told):
    """Every refusal has its key. For an unknown capacity, the error names an option."""
    bare = dataclasses.replace(told, telemetry=dataclasses.replace(told.telemetry, capacities=()))
    with pytest.raises(InputError) as error:
        situation(bare, _what_if())
    assert "golden: capacities: none for 'backend'" in str(error.value)
    assert "--capacity SERVICE=RPS" in str(error.value)
    helped = [f"--capacity={s}=600" for s in ("gateway", "frontend", "backend")]
    assert situation(bare, _what_if(*helped)).problem.capacity_rps["backend", "east"] == 600


def test_a_refusal_says_what_was_left_out(told):
    """An unreadable row is the reason why there is no capacity. The error reports both."""
    bad = ("CapacityRow: capacity_rps: 'many' must be a number or a UTC time",)
    bare = dataclasses.replace(told.telemetry, capacities=(), malformed=bad)
    with pytest.raises(InputError) as error:
        situation(dataclasses.replace(told, telemetry=bare), _what_if())
    assert f"left out: {bad[0]}" in str(error.value).splitlines()


def test_joined_problems_are_a_line_each():
    """A new line starts where a key follows. More text about the same key stays on its line."""
    joined = (
        "demand_rps: unknown 'x'; known: a, b; curves[a].a_ms: -1 must be 0; no, never; rtt_ms[a, b]: nan"
    )
    assert in_lines("golden", joined).splitlines() == [
        "golden: demand_rps: unknown 'x'; known: a, b",
        "golden: curves[a].a_ms: -1 must be 0; no, never",
        "golden: rtt_ms[a, b]: nan",
    ]


def test_draining_everything_is_said_to_change_nothing(told):
    """The optimum is the same as without draining, and a note says so.

    There is no such note while a cluster is left.
    """
    all_of_them = _plan(told, "--drain", "west", "--drain", "east")
    assert any("every cluster is drained" in note for note in all_of_them["notes"])
    cost = all_of_them["policies"][SPILLWAY]["objective_usd_per_hour"]
    assert cost == pytest.approx(_plan(told)["policies"][SPILLWAY]["objective_usd_per_hour"])
    assert not any("every cluster" in note for note in _plan(told, "--drain", "west")["notes"])


def test_columns_line_up_under_the_longest_name(told):
    """Numbers end where their heading ends, also next to waterfall-central."""
    lines = plan_text.as_text(_plan(told, policies=("waterfall-central", "local")), False).splitlines()
    head = next(n for n, line in enumerate(lines) if "mean ms" in line)
    end = lines[head].index("mean ms") + len("mean ms")
    rows = lines[head + 1 : head + 5]
    assert [row.split()[0] for row in rows] == ["now", "local", "waterfall-central", SPILLWAY]
    assert all(row[end - 1].isdigit() and row[end : end + 2] == "  " for row in rows)


def test_text_shows_what_json_has(told):
    """There is a line per policy with its numbers.

    Only the optimum's rules are shown, unless all rules are requested.
    """
    document = _plan(told, "--scale", "1.1")
    short, long = plan_text.as_text(document, False), plan_text.as_text(document, True)
    assert f"{document['policies']['local']['mean_latency_ms']:.2f}" in short
    assert "what if: demand times 1.1" in short and "Nothing was published" in short
    assert "rules of spillway:" in short and "rules of local:" not in short and "rules of local:" in long


def test_boards_of_a_window_are_means_of_its_sums():
    """Two rows of one class: entries count as demand, and all calls count as load.

    Times are those of calls that did not fail.
    """
    shared = {"cluster": "west", "service": "web", "class": "web GET /", "in_flight": 60.0}
    calls = [
        {**shared, "entry": 1, "calls": 100.0, "failed": 20.0, "duration_ms": 800.0, "exclusive_ms": 400.0},
        {**shared, "entry": 0, "calls": 50.0, "failed": 0.0, "duration_ms": 500.0, "exclusive_ms": 250.0},
    ]
    cpu = [{"cluster": "west", "service": "web", "utilisation": 0.3}]
    load, demand = clickhouse.boards(calls, cpu, clickhouse.Window(1000.0, 1010.0))
    entry, board = demand["west"]["web GET /"], load["west"]["web GET /"]
    assert (entry.at, entry.rps, entry.failed_share, entry.duration_ms) == (1010.0, 10.0, 0.2, 10.0)
    assert (board.rps, board.exclusive_ms, board.in_flight, board.cpu) == (15.0, 5.0, 0.8, 0.3)


def test_windows_of_history():
    """The default is the newest window of five minutes whose traces are stored.

    A window may start at a given time and have a given length, but never ends after now.
    """
    assert clickhouse.window(None, None, 1000.0) == clickhouse.Window(685.0, 985.0)
    assert clickhouse.window(None, 60.0, 1000.0) == clickhouse.Window(925.0, 985.0)
    assert clickhouse.window(400.0, 60.0, 1000.0) == clickhouse.Window(400.0, 460.0)
    assert clickhouse.window(980.0, 60.0, 1000.0) == clickhouse.Window(980.0, 1000.0)
    with pytest.raises(InputError, match="--since: .* lies ahead"):
        clickhouse.window(2000.0, None, 1000.0)


def test_times_are_read_as_utc_or_as_ago():
    assert (
        source_arguments.when("2026-01-01T00:00:30")
        == source_arguments.when("2026-01-01T01:00:30+01:00")
        == 1767225630.0
    )
    assert source_arguments.when("90m", now=10_000.0) == 4600.0
    for text in ("soon", "5", "-3m", "0s", "999999999d", "9" * 400 + "d", "0001-01-01T00:00+14:00"):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape(text)):
            source_arguments.when(text)


def test_rules_of_history_are_of_each_clusters_newest_version():
    """There is one row per rule and destination. Weights of 0 are left out."""
    row = {"at": 5.0, "version": 3, "source_cluster": "w", "source_service": "a", "class": "b GET /"}
    rows = [
        {**row, "destination_cluster": "w", "weight": 9000},
        {**row, "destination_cluster": "e", "weight": 1000},
        {**row, "destination_cluster": "s", "weight": 0},
    ]
    assert clickhouse.rules(rows) == ({("w", "a", "b GET /"): {"w": 9000, "e": 1000}}, 3, 5.0)
    assert clickhouse.rules([]) == (None, 0, 0.0)


@pytest.mark.parametrize(("left_s", "rules"), [
    (60, {("w", "a", "b GET /"): {"w": 10_000}}), (-60, {("w", "a", "b GET /"): {"w": 10_000}}), (-86_400, None),
])  # fmt: skip
def test_rules_that_are_held_no_longer_are_not_in_force(monkeypatch, told, left_s, rules):
    """Relays of the running mesh no longer follow these rules, and a note says so."""
    key = ("w", "a", "b GET /")
    ruleset = Ruleset()
    ruleset.expires_at.FromSeconds(int(time.time()) + left_s)
    known = InForce(
        {RuleKey(*key): {"w": 10_000}}, Origin.ORIGIN_OPTIMIZER, "spillway", {"w": 7}, "r", {"w": ruleset}
    )

    async def boards(url, clusters):
        return told.telemetry, known

    monkeypatch.setattr(live, "_hot", boards)
    monkeypatch.setattr(live.History, "model", lambda self: history.ModelRows((), (), (), ()))
    monkeypatch.setenv("SPILLWAY_REDIS_URL", "redis://localhost")
    monkeypatch.setenv("SPILLWAY_CLICKHOUSE_URL", "clickhouse://localhost")
    found = live.read(told.topology)
    assert found.in_force == rules
    assert ("rules: version 7 is the newest, and has expired" in found.notes) == (rules is None)


def test_long_work_says_what_it_is_and_short_work_is_silent():
    """One line appears when patience ends, and one with the time at the end. Nothing before."""
    told, said = io.StringIO(), threading.Event()
    progress = Progress(told, patience_s=0.0)
    tell = progress.say
    progress.say = lambda line: (tell(line), said.set())
    with progress.step("solving x"):
        assert said.wait(30)
    first, *_, last = told.getvalue().splitlines()
    assert first == "solving x ..." and last.startswith("solving x: ")
    silent = io.StringIO()
    with Progress(silent, patience_s=3600.0).step("solving x"):
        pass
    assert silent.getvalue() == ""

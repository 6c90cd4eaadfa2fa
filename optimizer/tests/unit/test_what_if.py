"""What-ifs of a plan: demand, capacity, drained clusters and missing services."""

import dataclasses

import pytest
from planning import BACKEND, GATEWAY, command, plan_of, what_if
from spillway_optimizer.policies import SPILLWAY
from spillway_optimizer.sources.errors import InputError
from spillway_optimizer.sources.situation import situation
from spillway_optimizer.sources.source_data import SourceData
from spillway_runtime import command_line


def _demand(data: SourceData, *arguments: str) -> dict[str, float]:
    return plan_of(data, *arguments)["size"]["demand_rps"]


def test_what_if_demand(data):
    """Demand is scaled first, and then set to absolute rates.

    A rate is for one class, or for the cluster in its proportions, and may be 0.
    """
    west, east = (data.telemetry.demand[c][GATEWAY].rps for c in ("west", "east"))
    assert _demand(data, "--scale", "2") == pytest.approx({"west": 2 * west, "east": 2 * east})
    assert _demand(data, "--scale", "west=0.5") == pytest.approx({"west": west / 2, "east": east})
    assert _demand(data, "--scale", "3", "--demand", "east=10") == pytest.approx(
        {"west": 3 * west, "east": 10}
    )
    assert _demand(data, "--demand", f"west:{GATEWAY}=77") == pytest.approx({"west": 77, "east": east})
    assert _demand(data, "--demand", "west=0") == pytest.approx({"west": 0, "east": east})


def test_demand_can_enter_where_none_was_seen(data):
    """With traces of one cluster, users of the other one are assumed to request the same mix."""
    west_only = dataclasses.replace(data.telemetry, demand={"west": data.telemetry.demand["west"]})
    document = plan_of(dataclasses.replace(data, telemetry=west_only), "--demand", "east=50")
    assert document["size"]["demand_rps"]["east"] == pytest.approx(50)
    assert document["what_if"] == ["50 req/s enter in east"]


def test_a_what_if_far_from_the_present_is_no_contradiction(data):
    """Twenty times the load board's rate is a question, not a measurement.

    It is planned, and overloaded services are named.
    """
    document = plan_of(data, "--scale", "20")
    assert any("of its capacity" in note for note in document["policies"][SPILLWAY]["notes"])


def test_what_if_a_service_is_not_there(data):
    """Without backend in west, its calls go to east, both now and under every policy."""
    document = plan_of(data, "--without", "backend@west")
    for rules in (document["policies"]["local"]["rules"], document["policies"][SPILLWAY]["rules"]):
        used = {c for rule in rules if rule["class"] == BACKEND for c in rule["weights"]}
        assert used == {"east"}
    assert document["now"]["network_ms"] > plan_of(data)["now"]["network_ms"] + 5
    beats = {c: frozenset({"gateway", "frontend", "backend"}) for c in ("west", "east")}
    live = dataclasses.replace(data, telemetry=dataclasses.replace(data.telemetry, placement=beats))
    same = plan_of(live, "--without", "backend@west")["policies"][SPILLWAY]
    assert same["mean_latency_ms"] == pytest.approx(document["policies"][SPILLWAY]["mean_latency_ms"])
    nobody = dict.fromkeys(beats, frozenset())  # a mesh that only sends telemetry
    live = dataclasses.replace(data, telemetry=dataclasses.replace(data.telemetry, placement=nobody))
    same = plan_of(live, "--without", "backend@west")["policies"][SPILLWAY]
    assert same["mean_latency_ms"] == pytest.approx(document["policies"][SPILLWAY]["mean_latency_ms"])


def test_what_if_a_cluster_is_drained(data):
    """Users still enter in the drained cluster, and their calls leave it."""
    rules = plan_of(data, "--drain", "west")["policies"][SPILLWAY]["rules"]
    assert {cluster for rule in rules for cluster in rule["weights"]} == {"east"}


def test_what_if_capacity(data):
    """Half the capacity in one cluster sends more calls away.

    Without a cluster, the capacity applies to all clusters.
    """

    def local_share(*arguments: str) -> int:
        rules = plan_of(data, *arguments)["policies"][SPILLWAY]["rules"]
        return sum(rule["weights"].get("west", 0) for rule in rules if rule["source_cluster"] == "west")

    assert local_share("--capacity", "backend@west=250") < local_share() - 500
    sound = {
        c: {k: dataclasses.replace(e, failed_share=0.0) for k, e in b.items()}
        for c, b in data.telemetry.load.items()
    }
    data = dataclasses.replace(data, telemetry=dataclasses.replace(data.telemetry, load=sound))
    document = plan_of(data, "--capacity", "backend=5000", policies=("local",))
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
def test_a_what_if_that_cannot_be_is_named_with_what_is_known(data, arguments, reasons):
    """All errors are reported together, each with its option, its value and the closest names."""
    with pytest.raises(InputError) as error:
        situation(data, what_if(*arguments))
    for reason in reasons:
        assert reason in str(error.value)


def test_an_entry_can_be_moved(data):
    """The advice in the refusal of --without for an entry service works."""
    document = plan_of(data, "--without", "gateway@west", "--demand", "west=0", "--demand", "east=300")
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
    assert command_line.run(command, "plan", arguments) == 2
    assert arguments[1] in capsys.readouterr().err


def test_draining_everything_is_said_to_change_nothing(data):
    """The optimum is the same as without draining, and a note says so.

    There is no such note while a cluster is left.
    """
    all_of_them = plan_of(data, "--drain", "west", "--drain", "east")
    assert any("every cluster is drained" in note for note in all_of_them["notes"])
    cost = all_of_them["policies"][SPILLWAY]["objective_usd_per_hour"]
    assert cost == pytest.approx(plan_of(data)["policies"][SPILLWAY]["objective_usd_per_hour"])
    assert not any("every cluster" in note for note in plan_of(data, "--drain", "west")["notes"])

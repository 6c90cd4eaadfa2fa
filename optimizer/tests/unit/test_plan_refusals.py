"""A plan that cannot be made says why: errors of the model's file, and incomplete problems."""

import dataclasses
import json

import pytest
from planning import GATEWAY, GOLDEN, what_if
from spillway_optimizer.sources import model_file
from spillway_optimizer.sources.errors import InputError, in_lines
from spillway_optimizer.sources.situation import situation


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


def test_a_problem_that_cannot_be_stated_says_why_and_what_helps(data):
    """Every refusal has its key. For an unknown capacity, the error names an option."""
    bare = dataclasses.replace(data, telemetry=dataclasses.replace(data.telemetry, capacities=()))
    with pytest.raises(InputError) as error:
        situation(bare, what_if())
    assert "golden: capacities: none for 'backend'" in str(error.value)
    assert "--capacity SERVICE=RPS" in str(error.value)
    helped = [f"--capacity={s}=600" for s in ("gateway", "frontend", "backend")]
    assert situation(bare, what_if(*helped)).problem.capacity_rps["backend", "east"] == 600


def test_a_refusal_says_what_was_left_out(data):
    """An unreadable row is the reason why there is no capacity. The error reports both."""
    bad = ("CapacityRow: capacity_rps: 'many' must be a number or a UTC time",)
    bare = dataclasses.replace(data.telemetry, capacities=(), malformed=bad)
    with pytest.raises(InputError) as error:
        situation(dataclasses.replace(data, telemetry=bare), what_if())
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

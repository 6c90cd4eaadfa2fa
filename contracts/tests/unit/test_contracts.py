"""Topology files, rulesets, class ids and hot-state values are checked, and mistakes are named."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import Ruleset, TrafficClass
from spillway_contracts import ContractError, hot_state, ruleset, topology, traffic_class

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


@pytest.fixture
def document() -> dict:
    return yaml.safe_load((GOLDEN / "topology.yaml").read_text())


def load(tmp_path: Path, document: object):
    """Writes the document to a file and loads it as a topology."""
    path = tmp_path / "topology.yaml"
    path.write_text(yaml.safe_dump(document))
    return topology.load(path)


def test_the_golden_topology_is_good(tmp_path, document):
    assert [c.name for c in load(tmp_path, document).clusters]


def test_an_unknown_cluster_is_named_with_its_key_and_what_is_allowed(tmp_path, document):
    document["links"][0]["destination_cluster"] = "nowhere"
    document["services"][0]["placements"][0]["cluster"] = "nowhere"
    with pytest.raises(ContractError) as error:
        load(tmp_path, document)
    allowed = ", ".join(sorted(c["name"] for c in document["clusters"]))
    assert f"links[0].destination_cluster: unknown cluster 'nowhere'; clusters: {allowed}" in str(error.value)
    assert "services[0].placements[0].cluster: unknown cluster 'nowhere'" in str(error.value)
    assert "topology.yaml" in str(error.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.update(regions=[]), 'no field named "regions"'),
        (lambda d: d["links"][0].update(rtt_ms=-1), "links[0].rtt_ms: -1.0 must be a number of at least 0"),
        (lambda d: d["links"][0].update(rtt_ms="fast"), "rtt_ms"),
        (lambda d: d["clusters"].append(dict(d["clusters"][0])), "is listed twice"),
        (lambda d: d["clusters"].append({"name": "a|b"}), "must be non-empty, without '|'"),
        (lambda d: d.update(clusters=[]), "clusters: empty"),
    ],
)
def test_every_mistake_in_a_topology_is_named(tmp_path, document, change, expected):
    change(document)
    with pytest.raises(ContractError) as error:
        load(tmp_path, document)
    assert expected in str(error.value)


@pytest.mark.parametrize("text", ["", "clusters", "[1, 2]", "a: [", "\x00"])
def test_what_is_no_topology_at_all_is_an_error_too(tmp_path, text):
    path = tmp_path / "topology.yaml"
    path.write_text(text)
    with pytest.raises(ContractError, match=r"topology\.yaml"):
        topology.load(path)


@pytest.fixture
def golden_ruleset() -> Ruleset:
    return json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())


def test_the_golden_ruleset_keeps_the_contract(golden_ruleset):
    assert ruleset.check(golden_ruleset, topology.load(GOLDEN / "topology.yaml")) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda r: r.ClearField("id"), "id: empty"),
        (lambda r: r.input_window.ClearField("id"), "input_window.id: empty"),
        (lambda r: r.expires_at.FromSeconds(0), "expires_at: must be later than created_at"),
        (lambda r: setattr(r.expires_at, "seconds", 1 << 60), "created_at, expires_at:"),
        (
            lambda r: setattr(r.rules[0], "source_cluster", "nowhere"),
            "rules[0].source_cluster: unknown cluster",
        ),
        (
            lambda r: setattr(r.rules[0].destinations[0], "cluster", "nowhere"),
            "destinations[0].cluster: unknown",
        ),
        (lambda r: r.rules[0].ClearField("destinations"), "weights sum to 0; must be 10000"),
        (lambda r: r.rules.append(r.rules[0]), "a second rule for"),
        (lambda r: setattr(r.rules[0].traffic_class, "method", "get"), "rules[0].traffic_class"),
        (lambda r: r.rules[0].destinations.append(r.rules[0].destinations[0]), "a cluster is listed twice"),
    ],
)
def test_every_breach_of_the_contract_is_named(golden_ruleset, change, expected):
    change(golden_ruleset)
    problems = ruleset.check(golden_ruleset, topology.load(GOLDEN / "topology.yaml"))
    assert any(expected in problem for problem in problems), problems


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z]", fullmatch=True),
    st.sampled_from(["GET", "POST"]),
    st.from_regex(r"(/[a-z{}]{1,8}){1,4}", fullmatch=True),
)
def test_class_ids_round_trip(service, method, path):
    original = TrafficClass(service=service, method=method, path_template=path)
    assert traffic_class.parse(traffic_class.format_id(original)) == original


@given(st.text())
def test_no_text_makes_the_class_parser_fail_otherwise(text):
    """Any text is either a class or a ContractError."""
    try:
        assert traffic_class.format_id(traffic_class.parse(text)) == text
    except ContractError as error:
        assert "traffic class" in str(error)


@pytest.mark.parametrize(
    "text", ["", "null", "{}", '{"at": 1}', '{"at": 1, "rps": 1, "failed_share": 0, "x": 1}']
)
def test_hot_state_that_is_not_what_it_should_be_is_an_error(text):
    with pytest.raises(ContractError, match="DemandEntry"):
        hot_state.DemandEntry.from_json(text)


@pytest.mark.parametrize("key", ["at", "rps", "duration_ms", "cpu"])
@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "1e999", '"12"', "true", "[1]", "{}", "null", "1" + "0" * 400]
)
def test_a_number_of_hot_state_is_finite(key, value):
    """The error names key and value. Only a value that can be unknown can be null."""
    entry = {"at": 1, "rps": 2, "failed_share": 0, "duration_ms": 3, "exclusive_ms": 4, "in_flight": 5}
    text = json.dumps(entry | {"cpu": 0.5, key: "?"}).replace('"?"', value)
    if (key, value) == ("cpu", "null"):
        assert hot_state.LoadBoardEntry.from_json(text).cpu is None
        return
    with pytest.raises(ContractError, match=rf"LoadBoardEntry\.{key}: .*; must be a finite number"):
        hot_state.LoadBoardEntry.from_json(text)


@pytest.mark.parametrize(
    "kind", [hot_state.LoadBoardEntry, hot_state.DemandEntry, hot_state.NetworkEntry, hot_state.UnknownEntry]
)
def test_no_number_of_hot_state_is_negative(kind):
    """Rates, shares, durations, counts and times cannot be negative, but can be zero.

    The error names key and value.
    """
    names = [field.name for field in dataclasses.fields(kind) if field.type is not str]
    entry = dict.fromkeys(names, 0) | {"reason": "silent"}
    assert kind.from_json(json.dumps(entry | dict.fromkeys(names, -0.0)))
    for key in names:
        with pytest.raises(ContractError, match=rf"{kind.__name__}\.{key}: -0.001; must be .* at least 0"):
            kind.from_json(json.dumps(entry | {key: -0.001}))


@pytest.mark.parametrize("value", ["null", "0", "[]", "true"])
def test_a_reason_of_hot_state_is_a_text(value):
    """An invalid reason is an error: if it read as no reason, the state would count as known."""
    with pytest.raises(ContractError, match=r"UnknownEntry\.reason: .*; must be a text"):
        hot_state.UnknownEntry.from_json(f'{{"at": 1, "reason": {value}}}')


def test_hot_state_round_trips():
    entry = hot_state.LoadBoardEntry(1.0, 2.0, 0.0, 3.0, 4.0, 5.0, None)
    assert hot_state.LoadBoardEntry.from_json(entry.to_json()) == entry
    unknown = hot_state.UnknownEntry(1.0, "no spans of the cluster for 12 s")
    assert hot_state.UnknownEntry.from_json(unknown.to_json()) == unknown

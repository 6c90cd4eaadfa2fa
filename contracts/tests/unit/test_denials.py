"""Denials of a ruleset: every breach of the contract is named with key and allowed values."""

from pathlib import Path

import pytest
from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Denial, Ruleset
from spillway_contracts import denials, ruleset, topology, traffic_class

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
CLUSTERS = ["east", "west"]


def denial(source: str = "east", class_id: str = "", clusters: tuple[str, ...] = ("west",)) -> Denial:
    """Returns a denial. Without a class id it applies to every class."""
    made = Denial(source_cluster=source, clusters=clusters)
    if class_id:
        made.traffic_class.CopyFrom(traffic_class.parse(class_id))
    return made


def test_denials_in_order_keep_the_contract():
    assert denials.check([denial(), denial(class_id="a GET /"), denial("west", "a GET /")], CLUSTERS) == []


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ([denial("mars")], "denials[0].source_cluster: unknown cluster 'mars'; clusters: east, west"),
        ([denial(clusters=("mars",))], "denials[0].clusters[0]: unknown cluster 'mars'; clusters: east, west"),
        ([denial(clusters=())], "denials[0].clusters: empty; at least one must be named"),
        ([denial(clusters=("west", "east"))], "must be in order of name, each once"),
        ([denial(clusters=("west", "west"))], "must be in order of name, each once"),
        ([denial(), denial()], "at most one of each"),
        ([denial("west"), denial("east")], "must be in order of (source_cluster, class id)"),
        (
            [denial(class_id=f"a GET /{i:04}") for i in range(1001)],
            "denials: 1001 of source cluster 'east'; must be at most 1000",
        ),
    ],
)  # fmt: skip
def test_every_breach_is_named(broken, expected):
    assert any(expected in problem for problem in denials.check(broken, CLUSTERS))


def test_a_class_that_is_none_is_named():
    """An empty class is not the same as no class, which means every class."""
    broken = denial()
    broken.traffic_class.SetInParent()
    (problem,) = denials.check([broken], CLUSTERS)
    assert problem.startswith("denials[0].traffic_class: traffic class")


def test_the_rulesets_contract_has_them():
    """The check of a ruleset includes its denials."""
    golden = json_format.Parse((GOLDEN / "5_ruleset.json").read_text(), Ruleset())
    golden.denials.append(denial("mars"))
    problems = ruleset.check(golden, topology.load(GOLDEN / "topology.yaml"))
    assert any("denials[0].source_cluster: unknown cluster 'mars'" in problem for problem in problems)

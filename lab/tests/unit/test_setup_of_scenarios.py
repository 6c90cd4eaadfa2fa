"""The report shows a scenario's network, load and events as the file has them."""

from pathlib import Path

import pytest
import yaml
from spillway_lab.pages import setup
from spillway_lab.pages.blocks import Table, Text
from spillway_lab.scenario import scenario

LAB = Path(__file__).resolve().parents[2]


def shown(tmp_path: Path, **changes: object) -> tuple[Table, str]:
    """The matrix of round trips, and the sentences."""
    document = yaml.safe_load((LAB / "scenarios/two-clusters.yaml").read_text())
    document["application"] = str(LAB / "applications/chain.yaml")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document | changes, sort_keys=False))
    found = list(setup.blocks(scenario.load(tmp_path / "s.yaml")))
    assert isinstance(found[0], Table)
    return found[0], " ".join(block.text for block in found if isinstance(block, Text))


def test_round_trips_are_a_matrix_and_missing_links_are_marked(tmp_path) -> None:
    """Directions that differ are both shown. A pair without a link has a dash, not 0."""
    link = {"egress_usd_per_gb": 0.05, "source_cluster": "west", "destination_cluster": "east", "rtt_ms": 7}
    table, text = shown(tmp_path, links=[link])
    assert table.columns == ("round trip, ms", "west", "east")
    assert table.rows == (("west", "", "7"), ("east", "-", ""))
    assert "Egress costs 0.05 USD per GB." in text


def test_load_over_time_is_told_phase_by_phase(tmp_path) -> None:
    """Ramps and bursts are in the sentence, with their seconds and factors."""
    phases = [
        {"seconds": 20, "rps": {"west": 10}, "to_rps": {"west": 50}},
        {"seconds": 40, "rps": {"west": 5}, "burst": {"every_seconds": 10, "seconds": 2, "factor": 3}},
    ]
    load = {"measure": {"warm_up_seconds": 5, "phases": phases}}
    _, text = shown(tmp_path, load=load)
    assert "20 s of west 10 requests/s, changing to west 50" in text
    assert "; then 40 s of west 5 requests/s, every 10 s for 2 s 3 times as much, after 5 s" in text


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"link": {"destination_cluster": "east", "add_rtt_ms": 150}}, "any to east has 150 ms more"),
        (
            {
                "link": {
                    "source_cluster": "west",
                    "destination_cluster": "east",
                    "both_ways": True,
                    "rtt_ms": 9,
                }
            },
            "the round trip west to east and back is 9 ms",
        ),
        (
            {"service": {"service": "backend", "cluster": "west", "speed": 0.5, "available": False}},
            "backend in west has speed 0.5, available False",
        ),
        ({"cluster": {"cluster": "east", "reachable": False}}, "east is cut off"),
        ({"cluster": {"cluster": "east", "reachable": True}}, "east is reachable again"),
        ({"replicas": {"service": "backend", "cluster": "west", "pods": 3}}, "backend in west has 3 pods"),
    ],
)
def test_each_kind_of_event_is_described(tmp_path, event: dict, words: str) -> None:
    """The sentence names when and where something happens, and what."""
    _, text = shown(tmp_path, events=[{"at_seconds": 12} | event])
    assert "Events: at 12 s " in text
    assert words in text


def test_of_many_events_and_phases_only_counts_and_ranges_are_told():
    """A generated scenario has hundreds. Two events at one time are both told otherwise."""
    many = scenario.load(LAB / "scenarios/l3-scenario-1.yaml")
    text = " ".join(block.text for block in setup.blocks(many) if isinstance(block, Text))
    assert "Events: 180 changes, which are in the scenario's file." in text
    assert "requests/s, in 60 phases that are in the scenario's file" in text
    assert setup.events(many) == {}
    moved = setup.events(scenario.load(LAB / "scenarios/slow-cluster.yaml"))
    assert "central" in moved[660] and "south" in moved[660]

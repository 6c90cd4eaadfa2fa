"""Waterfall's thresholds are where the latency of a service's pods begins to rise."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from spillway_lab.render.render import topology
from spillway_lab.scenario import flows, queues, scenario
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.scenario import Scenario

LAB = Path(__file__).parents[2]
SHIPPED = sorted((LAB / "scenarios").glob("*.yaml"))


def given(tmp_path: Path, change=lambda document, application: None) -> Scenario:
    """A small scenario of two classes at one service, with a change."""
    document = yaml.safe_load((LAB / "scenarios/heavy-light.yaml").read_text())
    application = yaml.safe_load((LAB / "applications/heavy-light.yaml").read_text())
    change(document, application)
    document["application"] = "app.yaml"
    (tmp_path / "app.yaml").write_text(yaml.safe_dump(application, sort_keys=False))
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return scenario.load(tmp_path / "s.yaml")


@pytest.mark.parametrize(
    ("workers", "cv2", "expected"),
    # By hand: latency over u is 1 / u(1-u) for M/M/1 and 1 / u(1-u^2) for M/M/2. For M/G/1 it is
    # least at 1 / (1 + sqrt((1+cv2)/2)).
    [(1, 1.0, 0.5), (2, 1.0, 3**-0.5), (1, 0.0, 2**0.5 / (1 + 2**0.5)), (1, 7.0, 1 / 3)],
)
def test_the_knee_is_where_latency_over_utilisation_is_least(workers, cv2, expected) -> None:
    assert queues.knee(workers, cv2) == pytest.approx(expected, abs=0.001)


def test_more_workers_have_a_later_knee() -> None:
    """A line from the origin touches the curve of four workers at 66.5 %, as SCENARIOS.md says."""
    knees = [queues.knee(workers, 1.0) for workers in (1, 2, 4, 8, 16)]
    assert knees == sorted(knees) and knees[2] == pytest.approx(0.665, abs=0.001)
    latency = 1 + queues.wait_ms(4, 1.0, 1.0, np.array([knees[2]]))[0]
    assert latency == pytest.approx(1.28, abs=0.01)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_have_the_same_rule(path: Path) -> None:
    """None sets a threshold of its own, and each service that gets requests has one."""
    loaded = scenario.load(path)
    by_class = flows.rates(loaded.application, loaded.document.requests, loaded.document.shares())
    used = {class_id.split()[0] for class_id in by_class}
    for service, placements in loaded.document.placement.items():
        for cluster, placement in placements.items():
            assert placement.threshold_rps is None
            assert (loaded.threshold_rps(service, cluster) > 0) == (service in used)


def test_a_threshold_is_of_the_mix_that_comes(tmp_path) -> None:
    """One heavy request of five: 22.4 ms on average, and times that vary more."""
    loaded = given(tmp_path)
    cv2 = (0.8 * 2 * 8**2 + 0.2 * 2 * 80**2) / 22.4**2 - 1
    assert loaded.threshold_rps("backend", "west") == pytest.approx(
        queues.knee(4, cv2) * 4 / 0.0224, rel=0.001
    )


def test_pods_workers_and_speed_of_a_cluster_count(tmp_path) -> None:
    """Twice the pods hold twice the load, and pods of half the speed half of it."""

    def change(document, application):
        document["clusters"]["east"]["services"] = {"backend": {"speed": 0.5}}
        document["placement"]["backend"]["west"] = {"pods": 2}

    loaded, plain = given(tmp_path, change), given(tmp_path)
    one = plain.threshold_rps("backend", "west")
    assert loaded.threshold_rps("backend", "west") == pytest.approx(2 * one, rel=1e-4)
    assert loaded.threshold_rps("backend", "east") == pytest.approx(one / 2, rel=1e-4)


def test_a_threshold_of_the_file_is_taken_as_it_is(tmp_path) -> None:
    """Also 0, with which the optimizer uses the capacity that it has learned."""

    def change(document, application):
        document["placement"]["backend"] = {"west": {"threshold_rps": 0}, "east": {"threshold_rps": 77}}

    services = {row["name"]: row["placements"] for row in topology(given(tmp_path, change))["services"]}
    assert [row["threshold_rps"] for row in services["backend"]] == [0, 77]


def test_shares_may_differ_by_cluster(tmp_path) -> None:
    """The mix is that of all users: 179 in the west without heavy requests, 18 in the east."""

    def change(document, application):
        document["requests"][1]["share_by_cluster"] = {"west": 0}

    assert given(tmp_path, change).document.shares() == pytest.approx([179 + 18 * 0.8, 18 * 0.2])


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"north": 1}, "requests[1].share_by_cluster: unknown cluster 'north'; clusters: west, east"),
        ({"west": -1}, "requests.1.share_by_cluster.west: Input should be greater than or equal to 0"),
    ],
)
def test_wrong_shares_are_named(tmp_path, shares: dict, message: str) -> None:
    def change(document, application):
        document["requests"][1]["share_by_cluster"] = shares

    with pytest.raises(InvalidInput) as error:
        given(tmp_path, change)
    assert message in str(error.value)


def test_users_of_a_cluster_send_something(tmp_path) -> None:
    def change(document, application):
        for request in document["requests"]:
            request["share_by_cluster"] = {"east": 0}

    with pytest.raises(InvalidInput, match="share_by_cluster.east: all 0; allowed: at least one above 0"):
        given(tmp_path, change)


def test_calls_that_lead_back_are_named(tmp_path) -> None:
    """They would never end. The emulator refuses them too."""

    def change(document, application):
        back = {"service": "gateway", "method": "GET", "path": "/light/{id}"}
        application["services"]["backend"]["endpoints"][0]["calls"] = [[back]]

    with pytest.raises(InvalidInput, match="gateway GET /light/.* -> backend .* -> gateway GET /light"):
        given(tmp_path, change).threshold_rps("backend", "west")

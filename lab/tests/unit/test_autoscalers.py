"""Autoscalers of a scenario: the emulated algorithm, the scenario's keys, and the closed loop."""

import math
import random
from pathlib import Path

import pytest
from spillway_lab.experiments import lab
from spillway_lab.render.render import topology
from spillway_lab.scenario import scenario as scenarios
from spillway_lab.scenario.autoscalers import Autoscaler
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.simulator import rounds
from spillway_lab.simulator.pod_autoscaler import PodAutoscaler
from test_scenario_language import document, read, refused

LAB = Path(__file__).parents[2]
SCALED = {"backend": {"target_utilisation": 0.6, "max_pods": 8}}


def _pods(pods: int = 4, **settings: float) -> PodAutoscaler:
    known = {"target_utilisation": 0.5, "max_pods": 40, "start_seconds": 20}
    return PodAutoscaler(Autoscaler.model_validate(known | settings), pods)


def _run(scaled: PodAutoscaler, load_pods: float, since: int, until: int) -> list[int]:
    """Returns the pods that are wanted after each decision. `load_pods`: the work, in pods."""
    found = []
    for now in range(since, until, 15):
        scaled.start(now)
        scaled.decide(now, min(load_pods, scaled.ready))
        found.append(scaled.wanted)
    return found


@pytest.mark.parametrize(
    ("busy", "wanted"),
    [
        (2.0, 4),  # at the target
        (2.19, 4),  # 9.5 % above it: tolerated
        (2.21, 5),
        (2.8, 6),  # ceil(4 * 1.4)
        (1.81, 4),
        (4.0, 8),
    ],
)
def test_the_number_of_pods_follows_the_utilisation(busy, wanted):
    """ceil(pods * utilisation / target), with a tolerance of a tenth."""
    scaled = _pods()
    scaled.decide(15, busy)
    assert (scaled.wanted, scaled.ready) == (wanted, 4)


def test_pods_are_ready_after_their_start_and_idle_until_then():
    """Six are wanted. The load of four that are full would need eight, but two more are coming."""
    scaled = _pods(start_seconds=40)
    assert _run(scaled, 2.8, 15, 46) == [6, 6, 6] and scaled.ready == 4
    scaled.start(55)
    assert scaled.ready == 6


def test_no_more_than_twice_the_pods_or_four_more_come_at_once():
    scaled = _pods(pods=1, start_seconds=0)
    assert _run(scaled, 30, 15, 76) == [2, 4, 8, 16, 32]


def test_pods_leave_when_the_window_has_seen_no_need_for_them():
    """300 s after the load fell, and those that still start leave first."""
    scaled = _pods(pods=8)
    assert _run(scaled, 4.0, 15, 300)[-1] == 8
    fell = _run(scaled, 1.0, 300, 720)
    assert fell.index(2) == 20 and set(fell) == {8, 2}
    quick = _pods(stabilisation_seconds=0, start_seconds=100)
    quick.decide(15, 4.0)
    quick.decide(30, 0.9)
    assert (quick.wanted, quick.ready) == (2, 2)
    quick.start(200)
    assert quick.ready == 2


def test_three_minutes_count_as_settled():
    scaled = _pods(start_seconds=0)
    scaled.decide(15, 4.0)
    assert [scaled.settled(now) for now in (15, 190, 195)] == [4, 4, 8]


@pytest.mark.parametrize("seed", range(50))
def test_a_constant_load_leads_to_a_number_of_pods_that_stays(seed):
    """Any target, start and load: within tolerance of the target in the end, unless bounded."""
    r = random.Random(seed)
    target, load = r.uniform(0.2, 0.9), r.uniform(0.3, 30)
    scaled = _pods(r.randint(1, 40), target_utilisation=target, start_seconds=r.uniform(0, 90))
    found = _run(scaled, load, 15, 3000)
    still = found[-60:]
    assert len(set(still)) == 1 and 1 <= still[0] <= 40
    most = math.ceil(load / target)
    if still[0] not in (1, 40):
        assert load / still[0] / target <= 1.1 + 1e-9 and still[0] <= max(most, load / target / 0.9 + 1)


def test_a_declared_autoscaler_is_in_the_topology(tmp_path):
    content = document() | {"autoscalers": {"backend": SCALED["backend"] | {"clusters": ["west"]}}}
    [backend] = [s for s in topology(read(tmp_path, content))["services"] if s["name"] == "backend"]
    west, east = backend["placements"]
    assert west["autoscaler"] == {"target_utilisation": 0.6, "max_pods": 8} and "autoscaler" not in east
    content["autoscalers"]["backend"]["declared"] = False
    assert "autoscaler" not in str(topology(read(tmp_path, content)))


@pytest.mark.parametrize(
    ("autoscalers", "events", "expected"),
    [
        ({"store": SCALED["backend"]}, [], "autoscalers.store: unknown service 'store'"),
        ({"backend": {"max_pods": 8}}, [], "autoscalers.backend.target_utilisation: Field required"),
        ({"backend": SCALED["backend"] | {"min_pods": 9}}, [], "min_pods: 9; allowed: at most max_pods, 8"),
        ({"backend": SCALED["backend"] | {"min_pods": 2}}, [], "placement.backend.west.pods: 1; allowed by"),
        ({"backend": SCALED["backend"] | {"clusters": ["north"]}}, [], "is not placed in 'north'; allowed: west"),
        (SCALED, [{"at_seconds": 1, "replicas": {"service": "backend", "cluster": "west", "pods": 2}}],
         "events[0].replicas: an autoscaler sets the pods of 'backend'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_autoscaler_is_named(tmp_path, autoscalers, events, expected):
    assert expected in refused(tmp_path, document() | {"autoscalers": autoscalers, "events": events})


def test_a_live_run_refuses_autoscalers(tmp_path):
    scenario = read(tmp_path, document() | {"autoscalers": SCALED})
    with pytest.raises(InvalidInput, match=r"autoscalers\.backend: a live run starts all pods before"):
        lab.refuse(scenario)


def _simulated(tmp_path: Path, declared: bool) -> rounds.Simulated:
    """Runs the shipped scenario under Spillway. Only its last six minutes are measured."""
    scenario = scenarios.load(LAB / "scenarios/autoscaled.yaml")
    content = scenario.document.model_dump()
    content["autoscalers"]["backend"]["declared"] = declared
    measure = {"warm_up_seconds": 1140, "measured_seconds": 360, "rps": {"west": 330, "east": 200}}
    content["load"] = {"profile": [], "measure": measure}
    changed = type(scenario.document).model_validate(content)
    scenario = scenario.model_copy(update={"document": changed})
    [found] = rounds.rounds(scenario, ["spillway"], 1, tmp_path, lambda _: None)
    return found


def test_pods_come_and_requests_come_home_in_the_simulator(tmp_path):
    """Real queues and the real optimizer with PAPA: 5 or 6 pods, none leaves, and no egress."""
    found = _simulated(tmp_path, declared=True)
    wanted = [count.wanted for count in found.pods]
    assert wanted == sorted(wanted) and wanted[-1] in (5, 6, 7)
    assert max(count.at_s for count in found.pods) < 1140
    assert found.egress_usd_per_hour == 0.0 and found.samples.failed == 0


def test_an_autoscaler_that_is_not_declared_sees_no_load(tmp_path):
    """Two pods stay, and 120 requests/s or more still leave the cluster."""
    found = _simulated(tmp_path, declared=False)
    assert {count.wanted for count in found.pods} <= {2, 3}
    assert found.egress_usd_per_hour > 120 * 3600 * 16384e-9 * 0.02

"""Capacities of measured and unmeasured destinations, based on their pods."""

import json
import random

import pytest
from google.protobuf import json_format
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts.hot_state import LoadBoardEntry
from spillway_optimizer.clients import hot
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.inputs.telemetry import CapacityRow, Telemetry
from spillway_optimizer.model.capacities import GROWTH, START, capacities
from spillway_optimizer.problem.problem import Curve

NOW, SERVICE, CLASS = 1000.0, "shop", "shop GET /a"
CURVES = {CLASS: Curve(10.0, 1.0, 1.0)}


def _row(cluster: str, rps: float, pods: float = 0, evidence: str = "") -> CapacityRow:
    return CapacityRow(NOW, "", cluster, SERVICE, rps, pods, evidence)


def _inputs(
    rows: list[CapacityRow], live: dict[str, int], served: dict[str, float] | None = None
) -> Telemetry:
    load = {
        cluster: {CLASS: LoadBoardEntry(NOW, rps, 0.0, 10.0, 10.0, 1.0, None)}
        for cluster, rps in (served or {}).items()
    }
    placement = {row.cluster: frozenset({SERVICE}) for row in rows} | {c: frozenset({SERVICE}) for c in live}
    pods = {(cluster, SERVICE): count for cluster, count in live.items()}
    return Telemetry(capacities=tuple(rows), load=load, placement=placement, pods=pods)


def _of(inputs: Telemetry, cluster: str) -> tuple[float, tuple[str, ...]]:
    found = capacities(inputs, [(SERVICE, cluster)], CURVES, NOW, 3600)
    assert found.refusals == ()
    return found.capacity_rps[SERVICE, cluster], found.notes


def test_a_region_of_two_pods_is_not_taken_for_the_mean_of_the_large_ones():
    """An unmeasured region of two pods gets the capacity of two pods.

    Regions of 20 and 18 pods can serve 2 000 and 1 240 req/s. So two pods can serve at most 138,
    and get a quarter of that before they have served any request. (Previously they got 1 620.)
    """
    rows, live = [_row("a", 2000, 20), _row("b", 1240, 18)], {"a": 20, "b": 18, "new": 2}
    whole = 2 * 1240 / 18
    rps, [note] = _of(_inputs(rows, live), "new")
    assert rps == pytest.approx(START * whole)
    assert "2 connected pods of 69 req/s" in note and "34 req/s at first, while 0 are served" in note


def test_a_ramp_grows_with_what_is_served_and_ends():
    """Each step gives at most twice the rate that is served.

    A destination that completes no request stays at its step.
    """
    rows, live, steps, served = [_row("a", 1000, 10)], {"a": 10, "new": 4}, [], 0.0
    for _ in range(5):
        steps.append(_of(_inputs(rows, live, {"new": served}), "new")[0])
        served = 0.9 * steps[-1]
    assert steps[0] == pytest.approx(START * 400) and steps[-1] == pytest.approx(400)
    assert all(b <= GROWTH * a for a, b in zip(steps, steps[1:], strict=False))
    failing = LoadBoardEntry(NOW, 90.0, 1.0, 10.0, 10.0, 1.0, None)
    inputs = _inputs(rows, live)
    inputs.load["new"] = {CLASS: failing}
    assert _of(inputs, "new")[0] == steps[0]


@pytest.mark.parametrize("seed", range(200))
def test_an_unmeasured_destination_gets_no_more_than_the_worst_pod_of_its_like_times_its_pods(seed):
    """The limit holds for any capacities of other clusters, any served rate, and unknown pods."""
    r = random.Random(seed)
    rows = [
        _row(f"c{i}", r.uniform(1, 5000), r.choice([0, 1, 2, 7, 40]), r.choice(["", "", "cpu", "assumed"]))
        for i in range(r.randint(1, 5))
    ]
    measured = [row for row in rows if row.evidence != "assumed"]
    live = {row.cluster: r.randint(1, 40) for row in rows if r.random() < 0.7}
    if r.random() < 0.8:
        live["new"] = r.randint(1, 40)
    per_pod = [row.capacity_rps / n for row in measured if (n := row.pods or live.get(row.cluster, 0))]
    if not per_pod:
        return
    inputs = _inputs(rows, live, {"new": r.choice([0.0, r.uniform(0, 10_000)])})
    assert _of(inputs, "new")[0] <= min(per_pod) * live.get("new", 1) * (1 + 1e-12)


def test_a_cluster_that_was_scaled_while_idle_does_not_keep_its_capacity():
    """The capacity was measured with eight pods, so two pods are worth a quarter of it.

    Each additional pod counts as a quarter of a pod until it is measured. All of them together at
    most double the capacity.
    """
    row = _row("a", 800, 8)
    assert _of(_inputs([row], {"a": 2}), "a")[0] == 200
    rps, [note] = _of(_inputs([row], {"a": 28}), "a")
    assert rps == 800 * (8 + START * 20) / 8 and "measured with 8 pods, 28 are connected, 20 of them" in note
    assert _of(_inputs([row], {"a": 300}), "a")[0] == GROWTH * 800
    assert _of(_inputs([row], {"a": 8}), "a") == (800, ())


def test_a_rollout_with_a_full_surge_raises_no_capacity_above_a_quarter():
    """Four new pods connect next to four old ones and replace them.

    They report CPU use before they serve. Streams count all eight, and the measured rate per pod
    stays. (Previously the capacity doubled.)
    """
    phases = [
        (4, 4),
        (4, 6),
        (4, 8),
        (8, 8),
        (8, 8),
        (8, 8),
        (8, 0),
        (8, 6),
        (8, 4),
        (4, 4),
    ]  # (counted, connected)
    for n, (counted, live) in enumerate(phases):
        settled = min(count for count, _ in phases[: n + 1])
        row = CapacityRow(NOW, "", "a", SERVICE, 100.0 * counted, counted, "cpu", settled)
        rps = _of(_inputs([row], {"a": live}), "a")[0]
        assert 400 <= rps <= 1.25 * 400, (counted, live)
    row = CapacityRow(NOW, "", "a", SERVICE, 800.0, 8, "cpu", 8)
    assert _of(_inputs([row], {"a": 8}), "a") == (800, ())


@pytest.mark.parametrize(("pods", "live"), [(0, {"a": 3}), (8, {}), (8, {"a": 0}), (0, {})])
def test_a_capacity_is_held_where_a_number_of_pods_is_unknown(pods, live):
    assert _of(_inputs([_row("a", 800, pods)], live), "a") == (800, ())


def test_what_streams_assumed_is_no_measurement():
    """If it counted as measured, it would end the ramp as soon as a first request arrives."""
    rows = [_row("a", 1000, 10), _row("new", 200, 2, "assumed")]
    assert _of(_inputs(rows, {"a": 10, "new": 2}), "new")[0] == START * 200


def test_pods_that_are_not_ready_do_not_count():
    """Of four connected Envoys, the Kubernetes API lists one pod as not ready. Unknown is no limit.

    Where none is ready, one counts: a number of 0 would be unknown.
    """
    beat = Heartbeat(cluster="a")
    for name, pods, ready in (("shop", 4, 3), ("dead", 4, 0), ("more", 9, 9)):
        beat.services.add(service=name, connected_envoys=4, pods=pods, ready_pods=ready)
    beat.services.add(service="old", connected_envoys=4)
    assert hot._pods(beat) == {"shop": 3, "dead": 1, "more": 4, "old": 4}


def test_pods_are_the_connected_envoys_of_the_placement():
    """Pods are read from Redis and from a model's file.

    Services without a count are placed with an unknown number of pods.
    """
    beat = Heartbeat(cluster="a")
    beat.services.add(service="shop", connected_envoys=3)
    beat.services.add(service="gone", connected_envoys=0)
    assert hot._connected(json_format.MessageToJson(beat), "a", []) == {"shop": 3}
    document = {key: [] for key in ("curves", "capacities", "call_ratios")} | {"load": {}, "demand": {}}
    inputs = telemetry.from_document(json.loads(json.dumps(
        document | {"placement": {"a": {"shop": 3}, "b": ["shop"], "c": None}}
    )))  # fmt: skip
    assert inputs.pods == {("a", "shop"): 3}
    assert inputs.placement == {"a": frozenset({"shop"}), "b": frozenset({"shop"}), "c": None}

"""The estimated p99 of users' requests: its moments, its quantile, and what is unknown."""

import dataclasses
import math

import numpy as np
import pytest
from spillway_optimizer import ProblemError
from spillway_optimizer.explain.p99 import p99s
from spillway_optimizer.problem.objective import evaluate, evaluate_shares, propagate, queue_factor
from spillway_optimizer.problem.problem import Curve, Edge, Problem, TailTarget
from spillway_optimizer.problem.problem_json import from_document, to_document
from spillway_optimizer.problem.tails import Moments, moments, p99, quantile
from spillway_optimizer.tails.prices import tail_prices

WEB, PAY, LOG = "web GET /checkout", "db POST /pay", "log POST /lines"
CLUSTERS = ("west", "east")
DRAWN = 1_000_000


def queue(mean_ms: float) -> Curve:
    """Returns the curve of an M/M/1 queue: the time of a request is exponential."""
    return Curve(mean_ms, 0.0, 1.0, mean_ms, 0.0)


@pytest.fixture
def chain() -> Problem:
    """One request of web makes 1.4 calls to db, half of which it waits for, and each 0.3 to log."""
    return Problem(
        clusters=CLUSTERS,
        classes={WEB: "web", PAY: "db", LOG: "log"},
        edges=(Edge(WEB, PAY, 1.4, 1e3, 1e4, 0.5), Edge(PAY, LOG, 0.3, 1e3, 1e4)),
        demand_rps={("west", WEB): 100.0, ("east", WEB): 50.0},
        curves={WEB: queue(1.0), PAY: queue(3.0), LOG: queue(8.0)},
        capacity_rps={(s, c): rps for s, rps in (("web", 400.0), ("db", 300.0), ("log", 90.0)) for c in CLUSTERS},
        placement=frozenset((s, c) for s in ("web", "db", "log") for c in CLUSTERS),
        rtt_ms={("west", "east"): 20.0, ("east", "west"): 20.0},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )  # fmt: skip


SHARES = np.array([[[0.7, 0.3], [0.0, 1.0]], [[0.6, 0.4], [0.2, 0.8]]])


def _drawn(problem: Problem, r: np.random.Generator, k: int, i: int, count: int) -> np.ndarray:
    """Returns times in ms of `count` requests of class k in cluster i, call by call."""
    layout = problem.layout
    flows, _ = propagate(layout, SHARES)
    own = evaluate(problem, flows).latency_ms
    times = r.exponential(own[k, i], count)
    for e in layout.out_edges[k]:
        whole, ratio = math.floor(layout.ratio[e]), layout.ratio[e]
        for n in range(whole + 1):
            made = r.random(count) < (1.0 if n < whole else ratio - whole)
            waited = made & (r.random(count) < problem.edges[e].wait_share)
            to = (r.random(count) >= SHARES[e, i, 0]).astype(int)
            for j in range(len(CLUSTERS)):
                called = waited & (to == j)
                times[called] += (
                    _drawn(problem, r, int(layout.edge_target[e]), j, int(called.sum())) + layout.rtt[i, j]
                )
    return times


def test_moments_are_those_of_drawn_requests(chain):
    """Mixed destinations, calls with a probability, calls that nobody waits for: as when drawn."""
    layout, r = chain.layout, np.random.default_rng(3)
    flows, load = propagate(layout, SHARES)
    evaluation = evaluate(chain, flows)
    found = moments(layout, flows, queue_factor(evaluation.utilisation))
    for k, i in ((0, 0), (0, 1), (1, 0)):
        times = _drawn(chain, r, k, i, DRAWN)
        assert found.mean[k, i] == pytest.approx(times.mean(), rel=0.005)
        assert found.variance[k, i] == pytest.approx(times.var(), rel=0.02)
        assert found.third[k, i] == pytest.approx(((times - times.mean()) ** 3).mean(), rel=0.06)
        assert p99(found)[k, i] == pytest.approx(np.quantile(times, 0.99), rel=0.06)


def test_the_mean_is_that_of_the_objective(chain):
    """Both sum the same times, so their volume-weighted means agree."""
    flows, _ = propagate(chain.layout, SHARES)
    evaluation = evaluate(chain, flows)
    found = moments(chain.layout, flows, queue_factor(evaluation.utilisation))
    demand = chain.layout.demand[0]
    assert (found.mean[0] * demand).sum() / demand.sum() == pytest.approx(evaluation.mean_latency_ms)


@pytest.mark.parametrize("queues", [1, 2, 5])
@pytest.mark.parametrize("network_ms", [0.0, 40.0])
def test_queues_in_a_row_have_the_p99_of_an_erlang_distribution(queues, network_ms):
    """The network adds exactly its time. Drawn: the sum of exponential times of 1 ms."""
    true = np.quantile(np.random.default_rng(5).gamma(queues, size=4_000_000), 0.99)
    sums = (np.array([[m]]) for m in (queues + network_ms, queues, 2.0 * queues))
    assert float(p99(Moments(*sums))[0, 0]) - network_ms == pytest.approx(true, rel=0.006)


def test_one_exponential_time_has_a_p99_of_4_6_means():
    """-ln(0.01) = 4.605. The approximation gives 4.610; a log-normal one would give 4.91."""
    assert 1.0 + float(quantile(np.array(2.0))[0]) == pytest.approx(-math.log(0.01), rel=0.0012)


def test_the_quantile_grows_with_the_skewness():
    """Its derivative is that of finite differences. Constant times have no spread to multiply."""
    at = np.linspace(0.0, 3.99, 200)
    value, slope = quantile(at)
    assert (np.diff(value) > 0).all()
    step = 1e-6
    assert slope == pytest.approx((quantile(at + step)[0] - quantile(at - step)[0]) / (2 * step), abs=1e-6)
    zero = np.zeros((1, 1))
    assert p99(Moments(zero + 7.0, zero, zero))[0, 0] == 7.0


def test_what_exceeds_the_target_counts_by_hand(chain):
    """Value times latency value times the excess in each entry cluster, by its volume."""
    targeted = dataclasses.replace(
        chain, tail_targets={WEB: TailTarget(70.0, 5.0)}, latency_values={WEB: 2.0}
    )
    plain = dataclasses.replace(targeted, tail_targets={})
    with_target, without = (evaluate_shares(p, SHARES) for p in (targeted, plain))
    at = {p.cluster: p.p99_ms for p in p99s(targeted, SHARES)}
    assert at["west"] > 70.0 > at["east"]
    penalty = 5.0 * 2.0 * (at["west"] - 70.0) * 100.0 * 1e-7 * 3600
    assert with_target.tail_usd_per_hour == pytest.approx(penalty)
    assert with_target.usd_per_hour == pytest.approx(without.usd_per_hour + penalty)
    assert without.tails == () and without.tail_usd_per_hour == 0.0
    assert with_target.mean_latency_ms == without.mean_latency_ms


def test_an_unknown_spread_makes_the_p99_of_callers_unknown(chain):
    """A target above it is not enforced, which a note says. Others stay known."""
    curves = {**chain.curves, LOG: Curve(8.0, 0.0)}
    blind = dataclasses.replace(chain, curves=curves, tail_targets={WEB: TailTarget(1.0, 5.0)})
    assert [p.p99_ms for p in p99s(blind, SHARES)] == [None, None]
    assert blind.layout.targets == () and evaluate_shares(blind, SHARES).tail_usd_per_hour == 0.0
    [note] = blind.layout.notes
    assert note == (
        f"tail_targets: the p99 of {WEB!r} is not known, so its target is not enforced: the spread of {LOG!r} "
        "is unknown"
    )
    edges = (chain.edges[0], dataclasses.replace(chain.edges[1], calls_per_request=0.0))
    idle = dataclasses.replace(blind, edges=edges)
    assert len(idle.layout.targets) == 1, "no call reaches the unknown class"
    assert all(p.p99_ms is not None for p in p99s(idle, SHARES))


def test_p99s_of_one_class_are_those_of_the_requests_behind_it(chain):
    """Only entry classes that lead to it are listed, with their targets."""
    other = "log GET /health"
    problem = dataclasses.replace(
        chain,
        classes={**chain.classes, other: "log"},
        curves={**chain.curves, other: queue(1.0)},
        demand_rps={**chain.demand_rps, ("west", other): 5.0},
        tail_targets={WEB: TailTarget(70.0, 5.0)},
    )
    assert {(p.class_id, p.target_ms) for p in p99s(problem, SHARES)} == {(WEB, 70.0), (other, None)}
    assert {p.class_id for p in p99s(problem, SHARES, LOG)} == {WEB}
    assert {p.class_id for p in p99s(problem, SHARES, other)} == {other}


def test_prices_are_the_derivative_of_the_p99(chain):
    """A ms of a class's mean or spread, by differences, at one entry cluster and routing."""
    alone = dataclasses.replace(
        chain,
        demand_rps={("west", WEB): 100.0},
        rtt_ms={},
        edges=tuple(
            dataclasses.replace(e, wait_share=1.0, calls_per_request=r)
            for e, r in zip(chain.edges, (2.0, 1.0), strict=True)
        ),
        curves={k: Curve(0.0, c.a_ms, 1.0, 0.0, c.a_ms) for k, c in chain.curves.items()},
        tail_targets={WEB: TailTarget(1.0, 5.0)},
    )
    local = np.broadcast_to(np.eye(2), (2, 2, 2))
    flows, load = propagate(alone.layout, local)
    [target] = alone.layout.targets
    prices = tail_prices(alone.layout, flows, load, {target: 1.0})

    def at(curves: dict[str, Curve]) -> float:
        return p99s(dataclasses.replace(alone, curves=curves), local)[0].p99_ms

    calls, step = {WEB: 1.0, PAY: 2.0, LOG: 2.0}, 1e-4
    for k, curve in alone.curves.items():
        assert prices[k].mean == pytest.approx(1.0)
        moved = (dataclasses.replace(curve, sd_b_ms=curve.sd_b_ms + d) for d in (step, -step))
        above, below = (at({**alone.curves, k: changed}) for changed in moved)
        assert prices[k].spread * calls[k] == pytest.approx((above - below) / (2 * step), rel=1e-4)


def test_a_problem_document_has_spreads_and_targets(chain):
    """What is unknown has no key, and reading gives the same problem."""
    curves = {**chain.curves, LOG: Curve(8.0, 0.0)}
    problem = dataclasses.replace(chain, curves=curves, tail_targets={WEB: TailTarget(70.0, 5.0)})
    document = to_document(problem)
    assert document["tail_targets"] == {WEB: {"p99_ms": 70.0, "value": 5.0}}
    assert document["curves"][WEB]["sd_a_ms"] == 1.0 and "sd_a_ms" not in document["curves"][LOG]
    assert from_document(document) == problem
    assert "tail_targets" not in to_document(chain)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tail_targets": {"x": TailTarget(1.0, 1.0)}}, "tail_targets: unknown 'x'"),
        ({"tail_targets": {WEB: TailTarget(0.0, 1.0)}}, r"p99_ms: 0.0 must be a number above 0"),
        ({"tail_targets": {WEB: TailTarget(1.0, math.nan)}}, r"value: nan must be a number above 0"),
        ({"curves": {WEB: Curve(1.0, 0.0, 1.0, 1.0)}}, "sd_a_ms 1.0, sd_b_ms None; both or none"),
        ({"curves": {WEB: Curve(1.0, 0.0, 1.0, -1.0, 2.0)}}, "sd_a_ms: -1.0 must be a number of at least 0"),
        (
            {"curves": {WEB: Curve(1.0, 0.0, 1.0, 1.0, -2.0)}},
            "sd_b_ms: -2.0 must be a number of at least -sd",
        ),
    ],
)
def test_wrong_targets_and_spreads_are_named(chain, changed, says):
    """The error has the key, the value and what is allowed."""
    if "curves" in changed:
        changed = {"curves": {**chain.curves, **changed["curves"]}}
    with pytest.raises(ProblemError, match=says):
        dataclasses.replace(chain, **changed)

"""How close the estimated p99 of a request is to that of simulated queues.

Usage: python optimizer/benchmarks/tails.py [SEED]

Each case is a request through first-in, first-out queues with Poisson arrivals. Mean and standard
deviation of each queue are those of the simulation, as a fitted curve would state them, so only the
way in which they are combined is compared: `shifted` is what the optimizer does (problem/tails.py),
`log-normal` and `gamma` have the mean and the variance of the request alone, and `2.33 sd` is that
of a normal distribution.
"""

import sys
from collections.abc import Callable

import numpy as np
from spillway_optimizer.problem.arrays import Floats
from spillway_optimizer.problem.layout import Layout
from spillway_optimizer.problem.problem import Curve, Edge, Problem
from spillway_optimizer.problem.tails import Z_99, Moments, moments, p99

REQUESTS = 1_000_000
_WARM_UP = 20_000
_DRAWN = 4_000_000  # of a gamma distribution, to find its quantile without one more dependency
Draw = Callable[[np.random.Generator, int], Floats]


def exponential(r: np.random.Generator, count: int) -> Floats:
    return r.exponential(size=count)


def constant(_: np.random.Generator, count: int) -> Floats:
    return np.ones(count)


def lognormal(r: np.random.Generator, count: int) -> Floats:
    """Draws times with the mean 1 and the coefficient of variation 1.5."""
    variance = np.log1p(1.5**2)
    return r.lognormal(-variance / 2, variance**0.5, count)


def sojourn(r: np.random.Generator, u: float, mean_ms: float, draw: Draw = exponential) -> Floats:
    """Returns the times in ms that requests spend in a queue at utilisation u, by arrival."""
    count = REQUESTS + _WARM_UP
    arrivals = np.cumsum(r.exponential(mean_ms / u, count))
    service = mean_ms * draw(r, count)
    done = np.cumsum(service)
    left = done + np.maximum.accumulate(arrivals - (done - service))
    return (left - arrivals)[_WARM_UP:]


def cases(r: np.random.Generator) -> dict[str, tuple[Floats, Moments]]:
    """Returns the times of requests in ms by case, and the moments that the optimizer estimates.

    Queues of different services are simulated apart, so that waiting at one says nothing about
    waiting at the next.
    """
    a, b, c = (sojourn(r, u, ms) for u, ms in ((0.8, 2.0), (0.5, 4.0), (0.7, 6.0)))
    steady, wide = sojourn(r, 0.7, 6.0, constant), sojourn(r, 0.7, 6.0, lognormal)
    rare, near = r.random(REQUESTS) < 0.3, r.random(REQUESTS) < 0.7
    alike = [sojourn(r, 0.6, 4.0) for _ in range(5)]
    twice = r.permutation(c), r.permutation(c)
    return {
        "one M/M/1 queue at 80 %": (a, _moments(a, [])),
        "five alike in a row": (sum(alike[1:], alike[0]), _moments(alike[0], [(t, 1.0) for t in alike[1:]])),
        "three different in a row": (a + b + c, _moments(a, [(b, 1.0), (c, 1.0)])),
        "one, 40 ms away": (b + 40.0 + c, _moments(b, [(c, 1.0)], 40.0)),
        "a call by 30 % of requests": (b + rare * c, _moments(b, [(c, 0.3)])),
        "the same, 40 ms away": (b + rare * (c + 40.0), _moments(b, [(c, 0.3)], 40.0)),
        "two calls to one class": (b + twice[0] + twice[1], _moments(b, [(c, 2.0)])),
        "30 % of calls 40 ms away": (b + c + np.where(near, 0.0, 40.0), _moments(b, [(c, 1.0)], 40.0, 0.7)),
        "M/D/1 at 70 %": (steady, _moments(steady, [])),
        "M/D/1 at 70 %, three in a row": (
            sum((sojourn(r, 0.7, 6.0, constant) for _ in range(2)), steady),
            _moments(steady, [(steady, 1.0), (steady, 1.0)]),
        ),
        "log-normal service (cv 1.5) at 70 %": (wide, _moments(wide, [])),
        "log-normal service, three in a row": (
            sum((sojourn(r, 0.7, 6.0, lognormal) for _ in range(2)), wide),
            _moments(wide, [(wide, 1.0), (wide, 1.0)]),
        ),
    }


def _moments(
    entry: Floats, calls: list[tuple[Floats, float]], away_ms: float = 0.0, near: float = 0.0
) -> Moments:
    """Returns the estimated moments of requests entering in west. A part `near` of calls stays."""
    classes = {"e GET /": "e"} | {f"s{n} GET /": f"s{n}" for n in range(len(calls))}
    times = [entry, *(times for times, _ in calls)]
    curves = {
        k: Curve(0.0, float(t.mean()), 1.0, 0.0, float(t.std())) for k, t in zip(classes, times, strict=True)
    }
    problem = Problem(
        clusters=("west", "east"),
        classes=classes,
        edges=tuple(Edge("e GET /", f"s{n} GET /", ratio, 0, 0) for n, (_, ratio) in enumerate(calls)),
        demand_rps={("west", "e GET /"): 1.0},
        curves=curves,
        capacity_rps={(s, c): 1e9 for s in classes.values() for c in ("west", "east")},
        placement=frozenset((s, c) for s in classes.values() for c in ("west", "east")),
        rtt_ms={("west", "east"): away_ms, ("east", "west"): away_ms},
        egress_usd_per_gb={},
        usd_per_ms=1e-7,
    )
    layout: Layout = problem.layout
    flows = np.zeros((len(calls), 2, 2))
    for n, (_, ratio) in enumerate(calls):
        flows[n, 0] = ratio * near, ratio * (1 - near)
    found = moments(layout, flows, np.ones((len(layout.services), 2)))
    k = layout.classes.index("e GET /")
    return Moments(*(values[k : k + 1, :1] for values in (found.mean, found.variance, found.third)))


def estimates(r: np.random.Generator, of: Moments) -> dict[str, float]:
    """Returns the p99 in ms by each way to estimate it."""
    mean, variance = float(of.mean[0, 0]), float(of.variance[0, 0])
    shape = mean**2 / variance
    log = np.log1p(variance / mean**2)
    return {
        "shifted": float(p99(of)[0, 0]),
        "gamma": float(np.quantile(r.gamma(shape, mean / shape, _DRAWN), 0.99)),
        "log-normal": float(mean * np.exp(-log / 2 + Z_99 * log**0.5)),
        "2.33 sd": mean + Z_99 * variance**0.5,
    }


def main() -> None:
    r = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print(f"{'case':38} {'p99 ms':>8} {'shifted':>9} {'gamma':>9} {'log-normal':>11} {'2.33 sd':>9}")
    for name, (times, of) in cases(r).items():
        true, found = float(np.quantile(times, 0.99)), estimates(r, of)
        errors = [f"{found[key] / true - 1:+9.1%}" for key in ("shifted", "gamma", "log-normal", "2.33 sd")]
        print(f"{name:38} {true:8.1f} {errors[0]} {errors[1]}   {errors[2]} {errors[3]}")


if __name__ == "__main__":
    main()

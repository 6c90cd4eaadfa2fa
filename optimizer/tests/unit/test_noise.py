"""Chance moves no rules. At one request per second, every board is based on a few calls."""

import dataclasses
import random

import pytest
from mesh import NOW, Mesh
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import names
from spillway_contracts.hot_state import NetworkEntry
from spillway_optimizer.inputs.in_force import InForce
from spillway_optimizer.inputs.telemetry import NetworkRow
from spillway_optimizer.problem.constraints import Constraints
from spillway_optimizer.problem.rules import RuleKey, max_difference
from spillway_optimizer.rulesets.decide import Memory, Thresholds, decide
from spillway_optimizer.rulesets.noise import without_noise
from two_applications import OTHER

PERIOD_S, WINDOW_S = 5.0, 30
RATE = 1.0  # requests per second that enter in each cluster
BOUND = 200  # parts of 10 000


class Noisy(Mesh):
    """The mesh at one request per second.

    Network times between clusters are measured on the calls that go there, over the last 30 s.
    Their standard deviation equals their mean. `true_ms`: the true mean by pair of clusters.
    """

    def __init__(self, settings, folder, seed: int, true_ms: dict[tuple[str, str], float], rtt_ms: float):
        super().__init__(settings, folder)
        self.random, self.true_ms = random.Random(seed), true_ms
        for link in self.topology.links:
            link.rtt_ms = rtt_ms
        self.seconds: dict[tuple[str, str], list[list[float]]] = {pair: [] for pair in true_ms}
        self.history: list[NetworkRow] = []
        self.board: dict[tuple[str, str], NetworkEntry] = {}

    def _poisson(self, mean: float) -> int:
        total, count = self.random.expovariate(1.0), 0
        while total < mean:
            total, count = total + self.random.expovariate(1.0), count + 1
        return count

    def calls(self) -> dict[tuple[str, str], float]:
        """Returns calls per second by the rules in force. Without rules, all calls are local."""
        rates, rules = dict.fromkeys(self.true_ms, 0.0), self.every() if self.sent else {}
        for prefix in ("", OTHER):
            arriving = dict.fromkeys(self.clusters, RATE)
            for caller, callee in (("gateway", "frontend"), ("frontend", "backend")):
                reached = dict.fromkeys(self.clusters, 0.0)
                for cluster, rate in arriving.items():
                    key = RuleKey(cluster, prefix + caller, f"{prefix}{callee} GET /items/{{id}}")
                    for to, weight in rules.get(key, {cluster: 10_000}).items():
                        rates[cluster, to] += rate * weight / 10_000
                        reached[to] += rate * weight / 10_000
                arriving = reached
        return rates

    async def tick(self, now: float) -> None:
        for pair, rate in self.calls().items():
            for _ in range(int(PERIOD_S)):
                calls = [self.random.expovariate(1 / self.true_ms[pair]) for _ in range(self._poisson(rate))]
                self.seconds[pair].append(calls)
            window = [ms for calls in self.seconds[pair][-WINDOW_S:] for ms in calls]
            if window:
                mean = sum(window) / len(window)
                self.board[pair] = NetworkEntry(now, mean, len(window))
                self.history.append(NetworkRow(now, *pair, mean, len(window)))

        def change(edited):
            for board in ("load", "demand"):
                for entries in edited[board].values():
                    for entry in entries.values():
                        entry["rps"] = self._poisson(RATE * WINDOW_S / 6) / (WINDOW_S / 6)

        await self.solve(now, change)

    def known(self, now: float) -> dict:
        rows = [
            row
            for pair in self.true_ms
            for row in [
                r for r in reversed(self.history) if (r.source_cluster, r.destination_cluster) == pair
            ][:12]
        ]
        return {**super().known(now), "network": self.board, "network_rows": tuple(rows)}

    def every(self):
        return {**self.rules(), **self.rules(OTHER)}


SAME = {("west", "west"): 8.0, ("east", "east"): 8.0, ("west", "east"): 9.0, ("east", "west"): 9.0}


@pytest.mark.parametrize("seed", range(6))
async def test_noise_alone_moves_no_rule_in_two_hundred_solves(settings, tmp_path, seed):
    """A call to the other cluster takes 1 ms longer than one at home.

    Both are measured with an error of several milliseconds.
    """
    mesh = Noisy(settings, tmp_path, seed, SAME, rtt_ms=1.0)
    first = None
    for n in range(200):
        await mesh.tick(NOW + PERIOD_S * n)
        first = first or (mesh.every() if mesh.sent else None)
        if first:
            now = mesh.every()
            both = first.keys() & now.keys()
            moved = max_difference({k: first[k] for k in both}, {k: now[k] for k in both})
            assert moved <= BOUND, (n, {k: (first[k], now[k]) for k in both if first[k] != now[k]})
    assert first and all(weights.get(key.source_cluster) == 10_000 for key, weights in first.items())


@pytest.mark.parametrize("seed", range(6))
async def test_a_difference_of_tens_of_milliseconds_moves_rules_within_twelve_solves(
    settings, tmp_path, seed
):
    """Calls within west begin to take 60 ms instead of 8 ms.

    Within a minute, hardly any call goes from west to west.
    """
    mesh = Noisy(settings, tmp_path, seed, dict(SAME), rtt_ms=1.0)
    for n in range(40):
        await mesh.tick(NOW + PERIOD_S * n)
    mesh.true_ms["west", "west"] = 60.0
    for n in range(40, 52):
        await mesh.tick(NOW + PERIOD_S * n)
    assert mesh.calls()["west", "west"] < 0.01 * RATE


def _two_rules(chain, noise_ms: float):
    """Returns a problem, the local rules, a candidate, and the keys.

    west's db is overloaded. A call to the other cluster seems so much shorter that it is worth the
    egress.
    """
    services = ("web", "db", "cache")
    capacity = {(s, c): 500.0 for s in services for c in ("west", "east")} | {("db", "west"): 60.0}
    rtt = {(i, j): 6.0 if i == j else 1.5 for i in ("west", "east") for j in ("west", "east")}
    problem = chain({"west": 100.0, "east": 10.0}, services=services, capacity=capacity, rtt=rtt)
    problem = dataclasses.replace(problem, rtt_noise_ms=dict.fromkeys(rtt, noise_ms))
    keys = [
        RuleKey(c, s, f"{to} GET /x") for c in ("west", "east") for s, to in (("web", "db"), ("db", "cache"))
    ]
    home = {key: {key.source_cluster: 10_000} for key in keys}
    return problem, home, {**home, keys[0]: {"west": 3000, "east": 7000}, keys[1]: {"east": 10_000}}, keys


def test_of_two_rules_the_one_whose_gain_may_be_chance_stays(chain):
    """It stays, however much another rule of the application gains.

    Without a rule before, calls are taken to have been local.
    """
    for before in (True, False):
        problem, home, candidate, keys = _two_rules(chain, noise_ms=1.0)
        kept = without_noise(problem, home if before else {}, candidate, None)
        assert kept == {**candidate, keys[1]: home[keys[1]]}
    problem, home, candidate, _ = _two_rules(chain, noise_ms=0.01)
    assert without_noise(problem, home, candidate, None) == candidate
    assert without_noise(_two_rules(chain, 0.0)[0], home, candidate, None) == candidate


def test_noise_keeps_no_rule_where_it_may_not_be(chain):
    """A destination that is denied, drained or gone is left, however little that gains.

    A floor is kept too.
    """
    problem, home, candidate, keys = _two_rules(chain, noise_ms=50.0)
    gone = dataclasses.replace(problem, placement=problem.placement - {("cache", "west")})
    kept = without_noise(gone, home, {**candidate, keys[3]: {"east": 10_000}}, None)
    assert kept[keys[1]] == {"east": 10_000}
    floor = dataclasses.replace(problem, constraints=Constraints(min_local_share=0.5))
    away = {**home, keys[1]: {"east": 10_000}}
    assert without_noise(floor, away, home, None) == home


@pytest.mark.parametrize("since_s", [-60.0, names.VALUE_HOLD_SECONDS + 60.0])
def test_noise_keeps_a_rule_only_as_long_as_relays_route_by_it(chain, since_s):
    """A new leader finds a remote split, and its candidate is local. The gain may be chance.

    The split stays while relays route by it. After it has given way to local calls, it does not
    return.
    """
    problem, home, _, keys = _two_rules(chain, noise_ms=50.0)
    expired = Ruleset()
    expired.expires_at.FromSeconds(1000)
    split = {**home, keys[1]: {"west": 2000, "east": 8000}}
    rulesets = {"west": expired, "east": expired}
    found = InForce(split, Origin.ORIGIN_OPTIMIZER, "spillway", {"west": 7, "east": 7}, "id", rulesets)
    decision = decide(Memory(), "spillway", home, True, problem, found, 1000.0 + since_s, Thresholds())
    assert decision.rules[keys[1]] == (split if since_s < 0 else home)[keys[1]]

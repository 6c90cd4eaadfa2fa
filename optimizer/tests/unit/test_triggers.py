"""Which changes make a solve urgent, and which do not."""

import math
from contextlib import asynccontextmanager

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from spillway_contracts.hot_state import DemandEntry
from spillway_optimizer.clients import hot
from spillway_optimizer.inputs.smoothing import smooth
from spillway_optimizer.inputs.telemetry import Pulse, Telemetry
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.observations import Observations
from spillway_optimizer.solving.triggers import BOARD_WINDOW_S, Basis, jumps, urgent

KEY, RARE = ("west", "web GET /x"), ("west", "web GET /rare")
PLACED = {"west": frozenset({"web", "db"}), "east": frozenset({"db"})}
BASIS = Basis({KEY: 400.0, RARE: 0.5}, PLACED, "spillway")


def _urgent(demand=None, placement=PLACED, policy="spillway", changed=False, basis=BASIS):
    found = urgent(basis, Pulse(demand or BASIS.demand, placement), policy, changed, 0.2)
    return found and (found.kind, found.detail)


def test_nothing_new_waits_for_the_period():
    """Demand, placement, policy and file are unchanged.

    Before the first solve, there is nothing to compare with.
    """
    assert _urgent() is None
    assert _urgent(demand={}, basis=None) is None


def test_each_change_is_urgent_and_named():
    """The changes are a jump of load, a lost heartbeat and a service that left.

    Another policy and another guardrail file are urgent too.
    """
    assert _urgent(demand={**BASIS.demand, KEY: 600.0}) == ("load", "'web GET /x' in west: 400 to 600 req/s")
    assert _urgent(demand={RARE: 0.5}) == ("load", "'web GET /x' in west: 400 to 0 req/s")
    assert _urgent(placement={**PLACED, "east": None}) == ("placement", "in east: no heartbeat any more")
    assert _urgent(placement={**PLACED, "west": frozenset({"web"})}) == ("placement", "in west: db left")
    assert _urgent(policy="local") == ("policy", "'local' after 'spillway'")
    assert _urgent(changed=True) == ("guardrails", "the file changed")
    assert _urgent(changed=True, basis=None) == ("guardrails", "the file changed")


def test_a_rare_class_may_double_without_being_urgent():
    """One more request in a window is no change of load."""
    assert _urgent(demand={**BASIS.demand, RARE: 1.0}) is None


@given(st.floats(0.1, 5000), st.integers(0, 2**32 - 1))
def test_counts_of_steady_demand_are_hardly_ever_a_jump(rate, seed):
    """Requests arrive at random at one rate.

    Of 1 000 boards, fewer than 5 differ from it by more than noise explains.
    """
    counts = np.random.default_rng(seed).poisson(rate * BOARD_WINDOW_S, 1000)
    boards = {("west", str(i)): n / BOARD_WINDOW_S for i, n in enumerate(counts)}
    assert len(jumps(dict.fromkeys(boards, rate), boards, 0.2)) < 5


@given(st.floats(100, 5000), st.floats(1.5, 10))
def test_a_change_well_beyond_noise_is_always_a_jump(rate, factor):
    """A change of 50 % or more at 100 requests per second or more is found, up and down."""
    assert (
        jumps({KEY: rate}, {KEY: rate * factor}, 0.2)
        == jumps({KEY: rate * factor}, {KEY: rate}, 0.2)
        == {KEY}
    )


def test_an_answer_to_a_jump_is_corrected_on_less_evidence_for_a_window():
    """The rate was 130, and the first answer took 77 for 60. Later, or elsewhere, that is noise."""
    basis = Basis({KEY: 77.0, RARE: 77.0}, PLACED, "spillway", jumped={KEY: 0.5})

    def found(since_s: float, key=KEY, rps: float = 66.0):
        return urgent(basis, Pulse({**basis.demand, key: rps}, PLACED), "spillway", False, 0.2, since_s)

    assert found(1.0) is not None and found(4.4) is not None
    assert found(4.6) is None and found(1.0, RARE) is None and found(1.0, rps=70.0) is None


def test_a_jump_counts_as_lately_for_a_window_and_its_corrections_prolong_nothing():
    def read(observations: Observations, rps: float, at: float) -> Observations:
        entry = DemandEntry(at, rps, 0.0, 1.0)
        return observations.after(
            Telemetry(demand={"west": {KEY[1]: entry}}), ("west",), at, OptimizerTuning()
        )

    seen = read(read(Observations(), 130.0, 100.0), 77.0, 105.0)
    assert seen.demand[KEY] == 77.0 and seen.jumped_before_s() == {KEY: 0.0}
    seen = read(seen, 66.0, 107.0)
    assert seen.demand[KEY] == 66.0 and seen.jumped_before_s() == {KEY: 2.0}
    seen = read(seen, 58.0, 111.0)
    assert seen.jumped_before_s() == {} and 58.0 < seen.demand[KEY] < 66.0


def test_a_jump_is_not_averaged_away():
    """A rate that jumped counts at once, and the rest is smoothed."""
    rates = smooth({KEY: 400.0, RARE: 1.0}, {KEY: 800.0, RARE: 2.0}, 5.0, 5.0, {KEY})
    assert rates[KEY] == 800.0 and math.isclose(rates[RARE], 1.5)
    assert KEY not in smooth({KEY: 400.0, RARE: 1.0}, {RARE: 1.0}, 5.0, 5.0, {KEY})


class _Redis:
    """A Redis in which every demand board has these entries."""

    def __init__(self, board):
        self.board, self.asked = board, 0

    @asynccontextmanager
    async def pipeline(self, transaction):
        yield self

    def hgetall(self, key):
        self.asked += 1

    get = hgetall

    async def execute(self, raise_on_error):
        return [self.board, None] * (self.asked // 2)


async def test_a_number_that_is_none_is_no_load():
    """A rate that is text or not finite is left out of the pulse. Other classes are compared."""
    entry = '{"at": 1, "rps": %s, "failed_share": 0, "duration_ms": 1}'
    board = {"web GET /x": entry % "400", "web GET /a": entry % '"12"', "web GET /b": entry % "NaN"}
    pulse = await hot.pulse(_Redis(board), ("west",))
    assert pulse.demand == {KEY: 400.0}
    assert urgent(BASIS, Pulse({**pulse.demand, RARE: 0.5}, PLACED), "spillway", False, 0.2) is None

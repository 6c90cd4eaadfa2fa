"""Round trips without a fresh measurement: the last measurement, its age, and declared times."""

import math

import pytest
from spillway.v1.topology_pb2 import Topology
from spillway_contracts.hot_state import NetworkEntry
from spillway_optimizer.inputs.telemetry import NetworkRow, RatioRow, Telemetry
from spillway_optimizer.model import network_times
from spillway_optimizer.model.network import network
from spillway_optimizer.model.network_times import Estimate, Measured

T0 = 1_767_000_000.0
DECLARED, SLOW, BOARD_AGE = 25.0, 80.0, 15.0
THERE = ("west", "east")


def _topology() -> Topology:
    made = Topology()
    for name in ("west", "east", "north"):
        made.clusters.add(name=name)
    made.links.add(source_cluster="west", destination_cluster="east", rtt_ms=DECLARED, egress_usd_per_gb=0.02)
    return made


def _remembered(age_s: float) -> Estimate:
    return network_times.estimate(DECLARED, None, Measured(T0, SLOW, 500), T0 + age_s)


def _rows(
    at: float, mean_ms: float, samples: float = 500, pair: tuple[str, str] = THERE
) -> tuple[NetworkRow, ...]:
    return tuple(NetworkRow(at - 5 * n, *pair, mean_ms, samples) for n in range(12))


def test_a_slow_link_without_traffic_stays_slow_and_its_uncertainty_grows():
    """Declared 25 ms, measured 80 ms, no calls for ten minutes: the estimate is still about 80 ms.

    Within a day, the measurement is forgotten.
    """
    telemetry = Telemetry(network_rows=_rows(T0, SLOW))
    after = [
        network(telemetry, _topology(), T0 + s, BOARD_AGE).rtt_ms[THERE] for s in (20, 600, 3600, 86_400)
    ]
    assert after[0] == pytest.approx(SLOW, rel=0.03) and after[1] == pytest.approx(SLOW, rel=0.1)
    assert after == sorted(after, reverse=True) and after[3] < 40
    errors = [_remembered(s).standard_error_ms for s in (20, 600, 3600, 86_400)]
    assert errors == sorted(errors) and errors[3] < DECLARED
    assert errors[0] < 5 < errors[1] < errors[2]


def test_few_calls_move_an_estimate_little_and_many_decide_it():
    """The mean of few calls is shrunk by its standard error towards the remembered time.

    Without memory, it is shrunk towards the declared time. Many calls override both.
    """
    slow = [
        network(Telemetry(network={THERE: NetworkEntry(T0, 31.0, n)}), _topology(), T0, BOARD_AGE).rtt_ms[
            THERE
        ]
        for n in (1, 6, 30, 10_000)
    ]
    assert slow == sorted(slow) and DECLARED < slow[0] < 28.5 and slow[3] == pytest.approx(31.0, rel=1e-3)
    rows = _rows(T0 - 60, SLOW)
    telemetry = [
        Telemetry(network={THERE: NetworkEntry(T0, 65.0, n)}, network_rows=rows) for n in (6, 100_000)
    ]
    few, many = (network(t, _topology(), T0, BOARD_AGE) for t in telemetry)
    assert 74 < few.rtt_ms[THERE] < SLOW and many.rtt_ms[THERE] == pytest.approx(65.0, rel=1e-2)
    assert few.notes == () and few.noise_ms[THERE] > many.noise_ms[THERE] > 0


def test_a_sampled_span_is_one_sample_however_many_calls_it_stands_for():
    """Thirty spans at one trace in a hundred count as thirty samples, not as 3 000.

    So the noise is ten times as large.
    """

    def noise_ms(calls: int, spans: float, at: float = T0) -> float:
        ratio = RatioRow(at, "", "a GET /", "b GET /", 1.0, 10.0, 10.0, spans)
        telemetry = Telemetry(network={THERE: NetworkEntry(T0, DECLARED, calls)}, call_ratios=(ratio,))
        return network(telemetry, _topology(), T0, BOARD_AGE).noise_ms[THERE]

    assert noise_ms(3000, 30) == pytest.approx(noise_ms(30, 30))
    assert noise_ms(3000, 30) == pytest.approx(10 * noise_ms(3000, 3000), rel=0.1)
    assert noise_ms(3000, 0) == noise_ms(3000, 3000) == noise_ms(3000, 9000), (
        "not known, all, and more than all"
    )


def test_a_measurement_that_contradicts_memory_replaces_it():
    """A link becomes slow between two minutes. It is known to be slow as soon as it is measured."""
    telemetry = Telemetry(network={THERE: NetworkEntry(T0, SLOW, 30)}, network_rows=_rows(T0 - 60, 10.0))
    assert network(telemetry, _topology(), T0, BOARD_AGE).rtt_ms[THERE] > 60


def test_what_is_declared_has_no_noise_but_that_of_calls_within_clusters():
    """A declared time does not change from solve to solve, even if it is wrong."""
    assert network(Telemetry(), _topology(), T0, BOARD_AGE).noise_ms[THERE] == 0.0
    telemetry = Telemetry(network={("west", "west"): NetworkEntry(T0, 8.0, 16)})
    found = network(telemetry, _topology(), T0, BOARD_AGE)
    assert found.noise_ms[THERE] == pytest.approx(8.0 / 4) and found.noise_ms["west", "west"] < 2.0


def test_a_link_that_was_not_used_for_long_is_uncertain_but_not_noisy():
    """An hour's drift is the same at the next solve.

    So a link that was measured once is tried like one that was never measured.
    """
    old, older = (_remembered(age_s) for age_s in (60.0, 3600.0))
    assert older.standard_error_ms > 2 * old.standard_error_ms and older.noise_ms < old.noise_ms < 4.0


def test_a_board_that_is_not_fresh_any_more_is_remembered():
    """Redis may be newer than history. Times ahead of the clock are ignored."""
    telemetry = Telemetry(network={THERE: NetworkEntry(T0, 60.0, 100)}, network_rows=_rows(T0 - 3000, SLOW))
    assert network(telemetry, _topology(), T0 + 30, BOARD_AGE).rtt_ms[THERE] == pytest.approx(60.0, rel=0.05)
    ahead = Telemetry(
        network={THERE: NetworkEntry(T0 + 9999, 60.0, 100)}, network_rows=_rows(T0 + 9999, SLOW)
    )
    assert network(ahead, _topology(), T0, BOARD_AGE).rtt_ms[THERE] == DECLARED


def test_calls_within_a_cluster_take_what_they_take_in_others():
    """3 ms where it was measured, and the mean weighted by precision where it was not.

    0 while nothing is known.
    """
    telemetry = Telemetry(
        network={("west", "west"): NetworkEntry(T0, 3.0, 100)},
        network_rows=_rows(T0 - 60, 4.0, 100, ("east", "east")),
    )
    rtt = network(telemetry, _topology(), T0, BOARD_AGE).rtt_ms
    assert rtt["west", "west"] == pytest.approx(3.0, rel=0.01)
    assert rtt["east", "east"] == pytest.approx(4.0, rel=0.05)
    assert rtt["west", "west"] < rtt["north", "north"] < rtt["east", "east"]
    assert network(Telemetry(), _topology(), T0, BOARD_AGE).rtt_ms["north", "north"] == 0.0


def test_notes_say_what_is_remembered():
    [note] = network(Telemetry(network_rows=_rows(T0, SLOW)), _topology(), T0 + 590, BOARD_AGE).notes
    assert (
        note.startswith("network times remembered, not measured now: west>east 7") and "of 10 min ago" in note
    )
    pairs = {(f"a{i}", "b"): _remembered(i) for i in range(7)}
    assert network_times.note(pairs)[0].endswith(" and 2 more")
    declared = network_times.estimate(DECLARED, None, None, T0)
    assert declared.origin == "declared" and math.isinf(declared.age_s)


def test_a_loop_that_measures_only_where_it_sends_does_not_oscillate():
    """Calls go to the other cluster while its round trip seems to be below 50 ms.

    Then it is measured: 80 ms. Previously, it was tried again every 25 s, which made 864 changes in
    three hours. Now it is tried once.
    """
    now, last, remote, changes = T0, None, True, 0
    while now < T0 + 3 * 3600:
        if remote:
            last = now
        rows = _rows(last, SLOW) if last is not None else ()
        board = {THERE: NetworkEntry(now, SLOW, 500)} if remote else {}
        rtt = network(Telemetry(network=board, network_rows=rows), _topology(), now, BOARD_AGE).rtt_ms[THERE]
        changes += remote != (rtt < 50.0)
        remote, now = rtt < 50.0, now + 5.0
    assert changes <= 3


def test_a_link_that_nobody_uses_takes_what_every_call_takes_besides_its_round_trip():
    """Proxies and the host add time to every call.

    If this time were included at home but not abroad, calls would be sent abroad.
    """
    for at_home in (0.8, 8.0):
        telemetry = Telemetry(network={("west", "west"): NetworkEntry(T0, at_home, 50)})
        found = network(telemetry, _topology(), T0, BOARD_AGE).rtt_ms
        assert found[THERE] - found["west", "west"] == pytest.approx(DECLARED)

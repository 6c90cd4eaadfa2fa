"""Rates by the proxies' counters: spans do not move them; without counters they are unknown."""

import numpy as np
import pytest
from counted_service import GOLDEN, PLACE, T0, A, B, World
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from spillway_contracts import names
from spillway_contracts.hot_state import DemandEntry, UnknownEntry
from spillway_streams.batches import marks
from spillway_streams.boards import counted, totals
from spillway_streams.boards.totals import Report, TotalsTable
from spillway_streams.load.attributes import PayloadError
from spillway_streams.process.counters import Counters


def test_a_span_that_claims_a_million_requests_moves_no_rate():
    """Forged tracestate, or requests with an unsampled flag: demand is what Envoys have counted."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 60, (B, True): 10, (A, False): 500}, "e2": {(A, True): 40}})
    assert world.rps(19.5, {A: 100, B: 10}) == pytest.approx({A: 100, B: 10})
    assert world.rps(19.5, {A: 2.0**20, B: 10}, samples=111) == pytest.approx({A: 100, B: 10})
    assert world.rps(19.5, {A: 1.0, B: 10}) == pytest.approx({A: 100, B: 10})
    assert world.board.known.keys() == {PLACE}


def test_a_counter_that_stands_still_is_a_known_zero():
    """The class leaves the board. The service stays known, though its cluster has no spans."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 60}})
    world.show(19.5, {A: 60})
    world.run(20, 40, {"e1": {(A, True): 0}})
    assert world.rps(39.5, {A: 60}, samples=0) == {} and world.board.known.keys() == {PLACE}
    silent = UnknownEntry(T0, "silent")
    found = {"west": {names.VALUE_WHOLE_CLUSTER: silent}, "east": {names.VALUE_WHOLE_CLUSTER: silent}}
    places = [PLACE, ("west", "stock"), ("east", "shop")]
    reasons = counted.statements(found, world.board, {}, [], places, lambda _: False)
    known = UnknownEntry(T0 + 39.3, "")
    assert reasons == {"west": {"shop": known, "stock": silent}, "east": {"shop": silent}}


def test_spans_that_are_dropped_do_not_make_load_smaller():
    """Half of the spans are lost: load comes from counters, latency from the spans that arrived."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 80}})
    [entry] = world.show(19.5, {A: 40}).values()
    assert (entry.rps, entry.duration_ms) == (pytest.approx(80), 5.0)
    world.run(20, 30, {"e1": {(A, True): 80}})
    [entry] = world.show(29.5, {}).values()
    assert (entry.rps, entry.duration_ms, entry.at) == (pytest.approx(80), 5.0, T0 + 29.3)


def test_an_envoy_whose_exports_stop_leaves_its_service_unknown():
    """The other Envoy's share is not the whole: the last values stay, with the reason."""
    world = World()
    both = {"e1": {(A, True): 50}, "e2": {(A, True): 50}}
    world.run(0, 20, both)
    before = world.show(19.5, {A: 100})
    for now in range(20, 60):
        world.run(now, now + 1, {"e1": {(A, True): 50}})
        if now >= 26:
            assert world.show(now + 0.5, {A: 50}) == before
    assert world.board.unknown[PLACE].reason == "counters of 1 of 2 Envoys stopped 40 s ago"
    world.counts["e2"][A, True] += 40 * 50
    world.run(60, 66, both)
    assert world.rps(65.5, {A: 100}) == {A: pytest.approx(100)} and world.board.unknown == {}


@pytest.mark.parametrize("rps", [0.2, 2.0, 20.0])
@pytest.mark.parametrize("entry", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_an_envoy_that_is_connected_is_not_gone_by_chance(rps, entry, seed):
    """One of two Envoys sends neither counters nor spans for three minutes.

    At these rates, the other's requests reach those of both by chance. While the placement counts
    two Envoys, the load is held. When it counts one, the load is that of the one.
    """
    world, chance = World(), np.random.default_rng(seed)
    world.connected = 2

    def second(now: int, envoys: tuple[str, ...]) -> dict[str, DemandEntry]:
        counts = {envoy: {(A, entry): int(chance.poisson(rps))} for envoy in envoys}
        world.run(now, now + 1, counts)
        came.append(sum(count for by_series in counts.values() for count in by_series.values()))
        rate = sum(came[-5:]) / 5
        return world.show(now + 0.5, {A: rate} if entry else {}, rate)

    came: list[int] = []
    for now in range(30):
        last = second(now, ("e1", "e2"))
    for now in range(30, 210):
        shown = second(now, ("e1",))
        if now > 36:
            assert PLACE in world.board.unknown and shown == last, now
        last = shown
    world.connected = 1
    for now in range(210, 213):
        second(now, ("e1",))
    assert world.board.unknown == {} and world.table.counted(*PLACE, T0 + 212.5, 1).total < 1.5 * rps + 1


def test_an_envoy_that_is_connected_and_sends_no_counters_leaves_its_service_unknown():
    """A worker that just began knows one Envoy, the placement two: one is not the whole."""
    world = World()
    world.connected = 2
    world.run(0, 20, {"e1": {(A, True): 50}})
    world.show(19.5, {A: 50})
    assert world.board.unknown[PLACE].reason == "counters of 1 of 2 Envoys do not arrive"
    assert world.rps(19.5, {A: 100}) == {A: 100} and world.board.unknown == {}


def test_an_idle_service_whose_envoys_fall_silent_is_unknown():
    """No requests before and no spans now: that is not a known zero."""
    world = World()
    world.connected = 1
    world.run(0, 20, {"e1": {(A, True): 0}})
    assert world.rps(19.5, {}) == {} and world.board.unknown == {}
    world.rps(30.5, {})
    assert PLACE in world.board.unknown
    world.rps(7200.0, {})
    assert PLACE in world.board.unknown
    world.connected = 0
    world.rps(7201.0, {})
    assert world.board.unknown == {} and PLACE not in world.table


def test_a_pod_that_is_replaced_makes_nothing_unknown():
    """Its successor sends once it is connected, and the placement always counts two."""
    world = World()
    world.connected = 2
    world.run(0, 20, {"e1": {(A, True): 50}, "e2": {(A, True): 50}})
    for now in range(20, 40):
        began = {"e1": {(A, True): 50}, "e3": {(A, True): 50}}
        world.run(now, now + 1, {"e1": began["e1"]})
        world.run(now, now + 1, {"e3": began["e3"]}, began=T0 + 19)
        found = world.rps(now + 0.5, {A: 100})
        assert world.board.unknown == {} and (now < 27 or found == {A: pytest.approx(100)})


def test_without_a_placement_envoys_that_are_silent_are_forgotten_after_an_hour():
    """No relay reports whether they have left."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 50}, "e2": {(A, True): 50}})
    world.show(19.5, {A: 100})
    world.run(20, 30, {"e1": {(A, True): 98}})
    assert world.rps(29.5, {A: 50}) == {A: pytest.approx(100)} and PLACE in world.board.unknown
    world.run(3640, 3660, {"e1": {(A, True): 50}})
    assert world.rps(3659.5, {A: 50}) == {A: pytest.approx(50)} and world.board.unknown == {}


def test_without_counters_spans_that_are_whole_count():
    """Metrics do not arrive but spans do, or some Envoys have a version without totals."""
    world = World()
    assert world.rps(1.0, {A: 7}) == {A: 7}
    world.run(0, 20, {"e1": {(A, True): 50}})
    world.show(19.5, {A: 50})
    assert world.rps(40.0, {A: 52}) == {A: 52} and world.board.unknown == {}
    world.run(40, 60, {"e1": {(A, True): 50}})
    assert world.rps(59.5, {A: 100}) == {A: 100} and world.counters["totals_of_some_envoys_only"] == 1


def test_classes_that_were_renamed_after_they_were_counted_have_their_share():
    """A rule makes one class of two. Requests without a class get one from their path."""
    world = World()
    world.run(
        0, 20, {"e1": {(A, True): 10, ("shop GET /x", True): 20, ("shop GET /y", True): 10, ("", True): 10}}
    )
    found = world.rps(19.5, {A: 10, "shop GET /{z}": 30, "shop GET /other": 10})
    assert found == pytest.approx({A: 10, "shop GET /{z}": 30, "shop GET /other": 10})


def test_resets_repeats_and_absurd_counts_are_no_requests():
    """A restart begins at zero, and a repeat counts once.

    A jump and a step back are counted, and the service is unknown for a while. A clock that is an
    hour ahead changes nothing.
    """
    world = World()
    world.run(0, 20, {"e1": {(A, True): 50}}, clock_ahead_s=3600.0)
    assert world.rps(19.5, {A: 50}) == {A: pytest.approx(50)}
    world.report("e1", 19.4, {(A, True): 1000}, 3600.0 - 0.2)
    assert world.counters["repeated_totals"] == 1
    world.report("e1", 20.3, {(A, True): 2**62}, 3600.0)
    assert world.counters["rejected_totals: more requests than can be"] == 1
    assert world.table.counted(*PLACE, T0 + 20.5, None) is None
    world.report("e1", 21.3, {(A, True): 5}, 3600.0)
    assert world.counters["rejected_totals: a counter went back"] == 1
    fresh = World()
    fresh.run(0, 20, {"e1": {(A, True): 50}})
    for now in range(20, 26):
        fresh.report("e1", now + 0.3, {(A, True): 50 * (now - 19)}, began=T0 + 19)
    assert fresh.rps(25.5, {A: 50}) == {A: pytest.approx(50)} and fresh.counters["totals_began_anew"] == 1


def test_memory_of_envoys_and_classes_is_bounded():
    world = World()
    world.table = TotalsTable(5, 3, 2, world.counters)
    for n in range(5):
        world.report(f"e{n}", n, {(f"shop GET /{i}", True): i for i in range(4)})
    assert world.counters["beyond_memory: totals: Envoys"] == 2
    assert world.counters["beyond_memory: totals: classes"] == 10


def test_a_flood_of_envoys_takes_nothing_from_other_clusters_and_services():
    """Thousands of names of one service in east: other services keep their rates.

    No more of the flood is remembered than the bound of a cluster.
    """
    world = World()
    world.table = TotalsTable(5, 20, 10, world.counters)
    places = [PLACE, ("east", "stock")]
    for now in range(20):
        for n in range(500):
            flood = Report("east", "flood", f"f{now}-{n}", int((T0 + now) * 1e9), T0 * 10**9, {})
            world.table.add([flood], T0 + now)
        for place in places:
            count = {(A, True): 50 * now}
            world.table.add([Report(*place, "e1", int((T0 + now) * 1e9), T0 * 10**9, count)], T0 + now)
    for place in places:
        assert world.table.counted(*place, T0 + 19.5, None).total == pytest.approx(50)
    assert world.counters["beyond_memory: totals: Envoys"] >= 20 * 500 - 20


def test_a_flood_of_clusters_takes_nothing_from_those_that_are_known():
    """Names of clusters beyond the maximum number are counted and left out."""
    world = World()
    for n in range(marks.MAX_CLUSTERS + 10):
        world.table.add([Report(f"c{n}", "shop", "e1", T0 * 10**9, (T0 - 99) * 10**9, {})], T0)
    assert len(world.table.services()) == marks.MAX_CLUSTERS and ("c0", "shop") in world.table
    assert world.counters["beyond_memory: totals: clusters"] == 10


def test_a_clock_that_was_set_back_costs_nothing():
    """The host's clock goes back by an hour under load. Counters that have grown are not a repeat.

    Every request counts exactly once.
    """
    world = World()
    world.run(0, 20, {"e1": {(A, True): 50}})
    for now in range(20, 40):
        world.run(now, now + 1, {"e1": {(A, True): 50}}, clock_ahead_s=-3600.0)
        assert world.rps(now + 0.5, {A: 50}) == {A: pytest.approx(50)} and world.board.unknown == {}
    world.run(40, 50, {"e1": {(A, True): 50}})
    assert world.rps(49.5, {A: 50}) == {A: pytest.approx(50)}
    assert world.counters["clocks_set_back"] == 1 and world.counters["repeated_totals"] == 0


def test_an_idle_envoy_whose_clock_was_set_back_stays_known():
    """Its counters stand still, so only the reports that continue show that it is not silent."""
    world = World()
    world.run(0, 20, {"e1": {(A, True): 50}})
    world.run(20, 30, {"e1": {(A, True): 0}})
    for now in range(30, 60):
        world.run(now, now + 1, {"e1": {(A, True): 0}}, clock_ahead_s=-3600.0)
        assert world.rps(now + 0.5, {}) == {} and world.board.unknown == {}
    world.run(60, 70, {"e1": {(A, True): 30}}, clock_ahead_s=-3600.0)
    assert world.rps(69.5, {A: 30}) == {A: pytest.approx(30)}


def test_an_envoy_that_restarts_after_its_clock_was_set_back_counts_once():
    """Its clock says that its counters began before the known ones.

    Nothing is counted again. It is known again once a window of it has been observed.
    """
    world = World()
    world.run(0, 20, {"e1": {(A, True): 50}})
    assert world.rps(19.5, {A: 50}) == {A: pytest.approx(50)}
    for now in range(20, 40):
        world.report("e1", now + 0.3, {(A, True): 10 * (now - 19)}, -3600.0, began=T0 + 19 - 3600)
        found = world.rps(now + 0.5, {A: 10})
        assert found == {A: pytest.approx(10)} if now >= 30 else found[A] <= 51
    assert world.counters["clocks_set_back"] == 1


@pytest.mark.parametrize("began", [T0 - 5000, T0 + 20])
def test_a_report_that_claims_another_life_of_an_envoy_that_goes_on_is_soon_forgotten(began):
    """Anyone with the cluster's certificate may claim that the Envoy began at another time.

    The Envoy's own reports are neither counted again nor rejected after that.
    """
    world, rates = World(), {"e1": {(A, True): 100}}
    world.run(0, 20, rates)
    world.report("e1", 20.1, {(A, True): 7}, ahead_s=0.9, began=began)
    for now in range(20, 40):
        world.run(now, now + 1, rates)
        assert world.rps(now + 0.9, {A: 100.0}, samples=100).get(A, 100) <= 110
    assert world.rps(39.9, {A: 50.0}) == pytest.approx({A: 100}) and world.board.known.keys() == {PLACE}


def test_reports_that_come_again_are_no_clock_that_was_set_back():
    """A queue from a disk is sent again, first beside newer reports, then alone.

    The Envoy has stopped, and nothing of it counts twice.
    """
    world = World()
    world.run(0, 20, {"e1": {(A, True): 50}})
    old = [(n + 0.3, {(A, True): 50 * (n + 1)}) for n in range(20)]
    for now in range(20, 38):
        world.run(now, now + 1, {"e1": {(A, True): 50}})
        sent, counts = old[now - 20]
        world.report("e1", now + 0.4, counts, sent - now - 0.4)
    assert world.rps(37.5, {A: 50}) == {A: pytest.approx(50)} and world.counters["clocks_set_back"] == 0
    for now in range(38, 58):
        sent, counts = old[now - 38]
        world.report("e1", now + 0.4, counts, sent - now - 0.4)
        found = world.rps(now + 0.5, {}, samples=0)
        assert found.get(A, 0) <= 51


def test_what_the_filter_sends_is_read():
    """The golden message of wasm/."""
    [report] = totals.decode(GOLDEN.read_bytes(), Counters())
    assert report.cluster and report.service and report.instance
    assert report.sent_ns > report.began_ns > 0 and any(entry for _, entry in report.counts)
    with pytest.raises(PayloadError):
        totals.decode(b"\xff", Counters())


def test_reports_that_a_collector_has_merged_are_told_apart():
    """Its batch names the Envoy once, with metrics of two of its reports, the later one first."""
    message = ExportMetricsServiceRequest.FromString(GOLDEN.read_bytes())
    [resource] = message.resource_metrics
    [scope] = resource.scope_metrics
    earlier = scope.metrics[:]
    later = [type(metric).FromString(metric.SerializeToString()) for metric in earlier]
    for point in (point for metric in later for point in metric.sum.data_points):
        point.time_unix_nano += 10**9
        point.as_int += 7
    del scope.metrics[:]
    scope.metrics.extend([*later, *earlier])
    [first] = totals.decode(GOLDEN.read_bytes(), Counters())
    found = totals.decode(message.SerializeToString(), Counters())
    assert found[0] == first and len(found) == 2
    assert found[1].sent_ns == first.sent_ns + 10**9
    assert found[1].counts == {series: count + 7 for series, count in first.counts.items()}


def test_totals_are_of_the_cluster_that_they_were_admitted_for():
    """Their own claims have no effect, but are counted."""
    counters = Counters()
    [report] = totals.decode(GOLDEN.read_bytes(), counters, "another")
    assert report.cluster == "another" and counters["claims_overridden: another"] == 1

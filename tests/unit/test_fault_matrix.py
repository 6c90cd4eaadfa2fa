"""The fault matrix (tests/e2e) is complete, and its judges detect the faults that they are for."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

import fault_matrix
import judges
from watching import Sample

CHAIN, KIOSK = ("west", "frontend", "backend GET /"), ("west", "kiosk", "till POST /")
EXPECTED = {"west": Counter(backend=1), "east": Counter(backend=1)}
ALL = [("", "east")]


def sample(at: float, away: int, kiosk: int = 0, **placed: dict | None) -> Sample:
    rules = {CHAIN: {"west": 10_000 - away, "east": away}, KIOSK: {"west": 10_000 - kiosk, "east": kiosk}}
    demand = {"west": {"gateway GET /": 40.0}, "east": {"gateway GET /": 10.0}}
    known_s = {"west": {"backend": 1.0}, "east": {"backend": 1.0}}
    placed = {"west": {"backend": 1}, "east": {"backend": 1}} | placed
    return Sample(at, rules, placed, {}, demand, known_s=known_s)


BEFORE = [sample(0, 3000), sample(1, 3400)]


def test_every_kind_of_fault_of_every_part_is_in_the_matrix_once():
    cells = Counter((fault.kind, fault.part) for fault in fault_matrix.MATRIX)
    assert cells == Counter((kind, part) for kind in fault_matrix.KINDS for part in fault_matrix.PARTS)


def test_the_faults_of_a_minute_are_those_that_are_asked_for():
    """The faults are one cluster's collector, one partition's worker and one Envoy's exports."""
    long = {fault.name for fault in fault_matrix.FAULTS if fault.core and fault.away_s >= 60}
    assert long == {"collector, stop", "worker, stop", "one Envoy's exports, stop"}


def test_what_stops_is_away_for_longer_than_it_takes_to_notice():
    """Otherwise no weight could rise in time, and the fault could not fail a test."""
    short = [
        f.name
        for f in fault_matrix.FAULTS
        if f.unknown and f.kind in ("stop", "slow") and f.away_s <= f.noticed_s
    ]
    assert short == []


def test_noise_is_no_finding():
    """Weights that stay near their previous values are accepted.

    So is a rise towards a cluster whose state is known.
    """
    during = [sample(2, 3600), sample(3, 2500)]
    assert judges.rising(BEFORE, [sample(2, 3450)], ALL, until=9) == []
    assert judges.collapsing(BEFORE, during) == []
    assert judges.rising(BEFORE, [sample(2, 9000)], [("", "west")], until=9) == []


def test_a_rise_towards_what_is_unknown_is_found():
    """The unknown part may be a whole cluster or one service in it."""
    findings = ["west frontend → backend GET /: 3400 → 4000 towards east, unknown"]
    assert judges.rising(BEFORE, [sample(2, 4000)], ALL, until=9) == findings
    assert judges.rising(BEFORE, [sample(2, 4000)], [("backend", "east")], until=9) == findings
    assert judges.rising(BEFORE, [sample(2, 4000)], [("till", "east")], until=9) == []


def test_what_is_healed_is_unknown_for_as_long_as_the_boards_say_so_or_are_old():
    rose = sample(20, 4000)
    assert judges.rising(BEFORE, [rose], ALL, until=9) == []
    for more in (
        {"unknown": {"east": {"*": "no spans"}}},
        {"unknown": {"east": {"backend": "?"}}},
        {"age_s": {"east": 60}},
    ):
        assert len(judges.rising(BEFORE, [replace(rose, **more)], ALL, until=9)) == 1


def test_what_rose_while_it_was_known_may_stay_when_it_is_unknown_again():
    """A step that was decided on fresh boards may be published shortly after they stopped.

    It may be published some seconds later, but not more.
    """

    def at(seconds, weight, is_unknown):
        return replace(sample(seconds, weight), unknown={"east": {"*": "no spans"}} if is_unknown else {})

    while_known = [at(20, 3400, False), at(21, 4000, False), at(22, 4000, True), at(40, 4000, True)]
    just_after = [at(20, 3400, False), at(21, 3400, True), at(23, 4000, True), at(40, 4000, True)]
    later = [at(20, 3400, False), at(21, 3400, True), at(30, 4000, True)]
    assert judges.rising(BEFORE, while_known, ALL, until=9) == []
    assert judges.rising(BEFORE, just_after, ALL, until=9) == []
    assert len(judges.rising(BEFORE, later, ALL, until=9)) == 1
    assert len(judges.rising(BEFORE, [at(8, 3400, True), at(9.5, 4000, True)], ALL, until=9)) == 1


def test_a_collapse_and_a_rule_that_goes_away_are_found():
    """A cluster that is lost, or whose link is slow, may lose its weights.

    No other rule may disappear.
    """
    assert "3000 → 900 towards east" in judges.collapsing(BEFORE, [sample(2, 900)])[0]
    assert judges.collapsing(BEFORE, [sample(2, 0)], lost=["east"]) == []
    assert judges.collapsing(BEFORE, [sample(2, 0)], left=["east"]) == []
    assert judges.collapsing(BEFORE, [sample(2, 900)], liars=["west"]) == []
    assert len(judges.collapsing(BEFORE, [sample(2, 900)], liars=["east"])) == 1
    gone = Sample(2, {KIOSK: BEFORE[0].weights[KIOSK]}, BEFORE[0].placed)
    assert len(judges.collapsing(BEFORE, [gone], liars=["west"])) == 2
    assert len(judges.collapsing(BEFORE, [gone], left=["east"])) == 1


def test_a_rule_of_the_other_application_must_not_change_at_all():
    assert judges.changing(BEFORE, [sample(2, 9000)], ["kiosk"]) == []
    assert len(judges.changing(BEFORE, [sample(2, 3000, kiosk=1)], ["kiosk"])) == 1


def test_an_envoy_that_is_not_placed_is_found():
    """A missing placement key is a finding only if the key must exist."""
    assert judges.vanishing(EXPECTED, BEFORE, always=True) == []
    assert len(judges.vanishing(EXPECTED, [sample(2, 0, east={})], always=False)) == 1
    assert judges.vanishing(EXPECTED, [sample(2, 0, east=None)], always=False) == []
    assert judges.vanishing(EXPECTED, [sample(2, 0, east=None)], always=True) == ["east: no placement"]


def test_where_the_clock_was_set_a_placement_may_be_away_until_it_is_written_again():
    """Redis drops all keys that expire. It is a finding if the key does not come back."""
    gone, clock_s = [sample(at, 0, east=None) for at in (2, 3, 7)], BEFORE[-1].clock_s + 40
    jumped = [replace(each, clock_s=clock_s) for each in gone]
    assert judges.vanishing(EXPECTED, jumped[:2], True, BEFORE) == []
    assert judges.vanishing(EXPECTED, jumped[1:2], True, [*BEFORE, jumped[0]]) == []
    for during in (jumped, gone):
        assert judges.vanishing(EXPECTED, during, True, BEFORE) == ["east: no placement"]
    assert judges.clock(BEFORE, jumped) == "the clock was set by +40.0 s"
    assert judges.clock(BEFORE, gone) == ""


def test_demand_of_a_cluster_that_does_not_lie_must_stay():
    during = [Sample(2, {}, demand={"west": {"gateway GET /": 90.0}})]
    assert judges.misled(BEFORE, during, liars=["east"]) == [
        "west gateway GET /: demand 40.0 → 90.0 by another's lie"
    ]
    assert judges.misled(BEFORE, during, liars=["west"]) == judges.misled(BEFORE, BEFORE, liars=[]) == []


def test_so_few_requests_that_chance_changes_them_are_no_lie():
    """At one request per second a window has only five. A tenfold change is not chance."""
    few = [Sample(at, {}, demand={"east": {"kiosk GET /": rps}}) for at, rps in enumerate((1.3, 0.4, 13.0))]
    assert judges.misled(few[:1], few[1:2], liars=[]) == []
    assert len(judges.misled(few[:1], few[2:], liars=[])) == 1


def test_what_is_unknown_or_not_placed_is_not_back():
    """A service without a report does not count as known, nor does one that was known long ago."""
    assert judges.missing(BEFORE[0], EXPECTED) == []
    unknown = replace(BEFORE[0], unknown={"west": {"*": "no spans"}})
    assert judges.missing(unknown, EXPECTED) == ["west: '*' unknown: no spans"]
    assert judges.missing(sample(2, 0, east=None), EXPECTED) == ["east: no placement"]
    for known_s in ({"west": {"backend": 1.0}}, {"west": {"backend": 1.0}, "east": {"backend": 60.0}}):
        findings = judges.missing(replace(BEFORE[0], known_s=known_s), EXPECTED)
        assert findings == ["east: nothing says that 'backend' is known"]


def test_the_band_says_how_far_weights_went():
    assert judges.band(BEFORE, [sample(2, 1500), sample(3, 4400)]).startswith("most +1500 ")
    assert "least 50% (west frontend → backend GET / at east, 3000..3400 → 1500..1500)" in judges.band(
        BEFORE, [sample(2, 1500)]
    )

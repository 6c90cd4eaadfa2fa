"""Recorded traffic: the six endpoints of Hotel Reservation stay six classes, and their findings."""

from itertools import combinations
from pathlib import Path

import pytest
from accuracy import traces
from simulated import decide_all
from spillway_streams.batches import columns, native_batch
from spillway_streams.classes.compare import DIFFERENT, compare, sampled
from spillway_streams.classes.memory import Memory
from spillway_streams.classes.options import Options
from spillway_streams.process.counters import Counters

CLASSES = [
    "frontend GET /hotels",
    "geo POST /geo.Geo/Nearby",
    "profile POST /profile.Profile/GetProfiles",
    "rate POST /rate.Rate/GetRates",
    "reservation POST /reservation.Reservation/CheckAvailability",
    "search POST /search.Search/Nearby",
]


@pytest.fixture(scope="module")
def recorded(hotel_reservation: list[Path]) -> Memory:
    """The memory after all six loads."""
    memory = Memory(3600, Counters())
    memory.turn(0)
    for path in hotel_reservation:
        for closed in traces.closed(path):
            for schema, batch, add in (
                (columns.CALLS, closed.calls, memory.add_calls),
                (columns.EDGES, closed.edges, memory.add_edges),
            ):
                add(native_batch.as_python(schema, native_batch.read(schema, batch)))
    return memory


def test_six_endpoints_stay_six_classes(recorded):
    """Each is the only class of its service, so nothing merges. No path is taken for a word."""
    written, found = decide_all(recorded, Options(), times=4)
    assert written == [] and sorted(found) == CLASSES
    assert all(
        finding.verdict in ("kept", "flagged") and finding.requests > 15_000 for finding in found.values()
    )


def test_any_two_of_them_would_stay_apart_in_one_service(recorded):
    """Compared at equal load, all fifteen pairs are different."""
    samples = [sampled(c) for s in recorded.services.values() for c in s.classes.values()]
    verdicts = [compare(left, right).verdict(Options()) for left, right in combinations(samples, 2)]
    assert verdicts == [DIFFERENT] * 15


def test_caches_show_as_two_modes(recorded):
    """Rates, reservations and profiles answer from memcached or a database, others do not."""
    _, found = decide_all(recorded, Options())
    modes = {finding.service: finding.modes for finding in found.values()}
    assert (modes["rate"], modes["reservation"], modes["profile"]) == (2, 2, 2)
    assert (modes["frontend"], modes["geo"]) == (1, 1)

"""Totals of the real Envoy, with which streams compares the spans."""

import time

import pytest
from filter_harness.bootstrap import NODE
from filter_harness.client import get, traced
from filter_harness.collector import values
from filter_harness.proxy import CLASS

pytestmark = pytest.mark.component


def test_totals_come_every_second_and_count_every_request(stack) -> None:
    """Totals start with zeros and then count every request once, sampled or not.

    Requests are counted by class and by whether they are entries, and spans by outcome. Two workers
    together send no more totals than one would.
    """
    totals = stack.collector.totals
    totals.wait_for(lambda totals: len(totals.exports) >= 1)
    assert set(totals.requests().items()) == {((None, False), 0), ((None, True), 0)}
    [resource] = totals.exports[-1].resource_metrics
    assert values(resource.resource.attributes) == {
        "service.name": "cart",
        "spillway.cluster": "east",
        "service.instance.id": NODE,
    }

    for sampled in (True, False):
        get(stack.proxy.outbound, "/users/1", traced(sampled)[2])
        get(stack.proxy.inbound, "/users/1", traced(sampled)[2])
        get(stack.proxy.inbound, "/elsewhere", traced(sampled)[2])
    expected = {(CLASS, False): 2, (CLASS, True): 2, (None, True): 2, (None, False): 0}
    totals.wait_for(lambda totals: totals.requests() == expected)
    totals.wait_for(lambda totals: totals.spans() == {"finished": 4, "sent": 4, "dropped": 0})

    count, began = len(totals.exports), time.monotonic()
    totals.wait_for(lambda totals: len(totals.exports) >= count + 3)
    assert time.monotonic() - began > 1.5
    points = totals.points("spillway.requests")
    assert len({point.start_time_unix_nano for point in points}) == 1
    assert points[0].start_time_unix_nano < points[0].time_unix_nano


def test_totals_that_fail_are_counted_and_not_repeated(stack) -> None:
    """A refused export is counted. The next accepted one contains everything."""
    totals = stack.collector.totals
    totals.wait_for(lambda totals: len(totals.exports) >= 1)
    totals.refuse = True
    before = sum(totals.requests().values())
    try:
        stack.proxy.wait_stat("totals_failures", lambda value: value > 0)
        assert get(stack.proxy.inbound, "/users/1").status == 200
    finally:
        totals.refuse = False
    totals.wait_for(lambda totals: sum(totals.requests().values()) == before + 1)

"""Load at arrival against the truth, with one, two and four workers.

The truth is what an open-loop client and the application recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

import pytest
from filter_harness.bootstrap import CLASSES
from filter_harness.collector import SERVER, Received
from filter_harness.openloop import Flow, HoldingApp, Record, drive
from filter_harness.proxy import Setup
from filter_harness.stack import Stack, running

pytestmark = pytest.mark.component

FLOWS = (
    Flow(CLASSES[0], "GET", "/users/7", rate=45, hold_ms=900),
    Flow(CLASSES[1], "GET", "/items/9", rate=30, hold_ms=500),
    Flow(CLASSES[2], "POST", "/orders", rate=20, hold_ms=1300),
    Flow("", "GET", "/else/where", rate=15, hold_ms=700),
)
SECONDS, WARM_UP = 7.0, 2.5
"""Steady state: longer than the longest request and the window together."""
NAMES = {
    "": ("spillway.load.in_flight", "spillway.load.arrival_rate"),
    "class": ("spillway.load.class.in_flight", "spillway.load.class.arrival_rate"),
}


@pytest.fixture(params=[1, 2, 4])
def workers(request, tmp_path) -> Iterator[Stack]:
    with running(tmp_path, Setup(concurrency=request.param), HoldingApp) as stack:
        yield stack


@dataclass(frozen=True)
class Stay:
    """The times of one request, between which its stay at the proxy began and ended.

    The proxy received the request between `sent` (by the client) and `read` (by the application).
    The request left between `answered` (by the application) and `done` (read by the client).
    """

    trace: str
    kind: str
    sent: float
    read: float
    answered: float
    done: float


def stays(records: list[Record], app: HoldingApp) -> list[Stay]:
    """Joins the client's records with the application's times."""
    return [Stay(r.trace, r.kind, r.sent, *app.inside[r.trace], r.done) for r in records]


Bounds = tuple[float, float]


def in_flight(all_stays: list[Stay], arrival: Stay) -> Bounds:
    """Returns the least and greatest possible number of requests inside when `arrival` came in.

    Both count `arrival` itself.
    """
    others = [stay for stay in all_stays if stay is not arrival]
    least = sum(stay.read <= arrival.sent and arrival.read <= stay.answered for stay in others)
    most = sum(stay.sent <= arrival.read and arrival.sent <= stay.done for stay in others)
    return least + 1, most + 1


def last_second(all_stays: list[Stay], arrival: Stay) -> Bounds:
    """Returns the least and greatest possible number of arrivals in the second before `arrival`."""
    others = [stay for stay in all_stays if stay is not arrival]
    least = sum(arrival.read - 1 <= stay.sent and stay.read <= arrival.sent for stay in others)
    return least, sum(arrival.sent - 1 <= stay.read and stay.sent <= arrival.read for stay in others)


def means(bounds: list[Bounds]) -> Bounds:
    """Returns the mean of the lower and of the upper bounds."""
    least, most = zip(*bounds, strict=True)
    return mean(least), mean(most)


def within(measured: float, bounds: Bounds, part: float, what: str) -> None:
    """Checks a value against its bounds, widened by the fraction `part`.

    A machine that delays client or application only moves the bounds apart.
    """
    least, most = bounds
    assert least * (1 - part) <= measured <= most * (1 + part), (
        f"{what}: {measured}, the truth: {least} to {most}"
    )


def agree(all_stays: list[Stay], spans: dict[str, Received], names: tuple[str, str], what: str) -> None:
    """Checks that the stamps' means are within 5 % of the truth, and that Little's law holds."""
    start = min(stay.sent for stay in all_stays)
    steady = [stay for stay in all_stays if stay.sent - start >= WARM_UP]
    rate = means([last_second(all_stays, stay) for stay in steady])
    inside, arrival_rate = (mean(spans[stay.trace].attributes[name] for stay in steady) for name in names)
    within(inside, means([in_flight(all_stays, stay) for stay in steady]), 0.05, f"{what}: in flight")
    within(arrival_rate, rate, 0.05, f"{what}: arrival rate")
    # Little's law: the mean number that an arrival finds equals rate x time in the system. All
    # three are taken over the same arrivals.
    holding = means([(stay.answered - stay.read, stay.done - stay.sent) for stay in all_stays])
    product = (rate[0] * holding[0], rate[1] * holding[1])
    within(inside - 1, product, 0.25, f"{what}: L = rate x W")


def test_stamped_load_is_the_truth(workers) -> None:
    """Mean in-flight requests and arrivals of the last second are within 5 % of the truth.

    This holds for the service and for each class. The stats count every arrival once, and no
    request is in flight at the end.
    """
    proxy = workers.proxy
    records = drive(proxy.inbound, FLOWS, SECONDS, seed=proxy.setup.concurrency)
    received = workers.collector.wait_for(lambda span: span.kind == SERVER, len(records))
    spans = {span.trace_id: span for span in received}
    everything = stays(records, workers.app)
    agree(everything, spans, NAMES[""], "service")
    stats = proxy.stats()
    for flow in FLOWS:
        same_kind = [stay for stay in everything if stay.kind == flow.kind]
        if not flow.kind:
            assert all("spillway.load.class.in_flight" not in spans[s.trace].attributes for s in same_kind)
            continue
        assert all(spans[s.trace].attributes["spillway.class"] == flow.kind for s in same_kind)
        agree(same_kind, spans, NAMES["class"], flow.kind)
        assert stats[f"inbound_class_arrivals.class.{flow.kind}"] == len(same_kind)
        assert stats[f"inbound_class_in_flight.class.{flow.kind}"] == 0
    assert (stats["inbound_arrivals"], stats["inbound_in_flight"]) == (len(records), 0)

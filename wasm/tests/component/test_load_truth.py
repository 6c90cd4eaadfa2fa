"""Load at arrival against the truth: what an open-loop client and the application saw, over one, two and four workers."""

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
    """One request: the proxy had it at the latest when the application read it, at the earliest when the
    client sent it; and it left no earlier than the application answered, no later than the client read that."""

    trace: str
    kind: str
    sent: float
    read: float
    answered: float
    done: float


def stays(records: list[Record], app: HoldingApp) -> list[Stay]:
    return [Stay(r.trace, r.kind, r.sent, *app.inside[r.trace], r.done) for r in records]


Bounds = tuple[float, float]


def in_flight(all_stays: list[Stay], own: Stay) -> Bounds:
    """The least and the most that can have been inside when this one arrived, itself included."""
    others = [stay for stay in all_stays if stay is not own]
    least = sum(stay.read <= own.sent and own.read <= stay.answered for stay in others)
    most = sum(stay.sent <= own.read and own.sent <= stay.done for stay in others)
    return least + 1, most + 1


def last_second(all_stays: list[Stay], own: Stay) -> Bounds:
    """The least and the most that can have arrived in the second before this one."""
    others = [stay for stay in all_stays if stay is not own]
    least = sum(own.read - 1 <= stay.sent and stay.read <= own.sent for stay in others)
    return least, sum(own.sent - 1 <= stay.read and stay.sent <= own.read for stay in others)


def means(bounds: list[Bounds]) -> Bounds:
    least, most = zip(*bounds, strict=True)
    return mean(least), mean(most)


def within(told: float, bounds: Bounds, part: float, what: str) -> None:
    """A machine that delays client or application moves the bounds apart, and nothing else."""
    least, most = bounds
    assert least * (1 - part) <= told <= most * (1 + part), f"{what}: {told}, the truth: {least} to {most}"


def agree(all_stays: list[Stay], spans: dict[str, Received], names: tuple[str, str], what: str) -> None:
    """The stamps' means are those of the truth within 5 %, and so is Little's law."""
    start = min(stay.sent for stay in all_stays)
    steady = [stay for stay in all_stays if stay.sent - start >= WARM_UP]
    rate = means([last_second(all_stays, stay) for stay in steady])
    told_inside, told_rate = (mean(spans[stay.trace].attributes[name] for stay in steady) for name in names)
    within(told_inside, means([in_flight(all_stays, stay) for stay in steady]), 0.05, f"{what}: in flight")
    within(told_rate, rate, 0.05, f"{what}: arrival rate")
    # Little: what an arrival finds in the system is rate x time there, here over the same arrivals.
    holding = means([(stay.answered - stay.read, stay.done - stay.sent) for stay in all_stays])
    product = (rate[0] * holding[0], rate[1] * holding[1])
    within(told_inside - 1, product, 0.25, f"{what}: L = rate x W")


def test_stamped_load_is_the_truth(workers) -> None:
    """Means of in-flight and of the last second's arrivals are within 5 % of what client and application
    saw, for the service and for each class; the stats count every arrival once and end at nothing."""
    proxy = workers.proxy
    records = drive(proxy.inbound, FLOWS, SECONDS, seed=proxy.setup.concurrency)
    received = workers.collector.wait_for(lambda span: span.kind == SERVER, len(records))
    spans = {span.trace_id: span for span in received}
    everything = stays(records, workers.app)
    agree(everything, spans, NAMES[""], "service")
    stats = proxy.stats()
    for flow in FLOWS:
        own = [stay for stay in everything if stay.kind == flow.kind]
        if not flow.kind:
            assert all("spillway.load.class.in_flight" not in spans[s.trace].attributes for s in own)
            continue
        assert all(spans[s.trace].attributes["spillway.class"] == flow.kind for s in own)
        agree(own, spans, NAMES["class"], flow.kind)
        assert stats[f"inbound_class_arrivals.class.{flow.kind}"] == len(own)
        assert stats[f"inbound_class_in_flight.class.{flow.kind}"] == 0
    assert (stats["inbound_arrivals"], stats["inbound_in_flight"]) == (len(records), 0)

"""Load at arrival against the truth: an open-loop client's own records, over one, two and four workers."""

from collections.abc import Iterator
from statistics import mean

import pytest
from filter_harness.bootstrap import CLASSES
from filter_harness.collector import SERVER, Collector, Received
from filter_harness.openloop import Flow, HoldingApp, Record, drive
from filter_harness.proxy import Proxy, Setup, free_ports

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
def workers(request, tmp_path) -> Iterator[tuple[Proxy, Collector, int]]:
    app_port, collector_port = free_ports(2)
    app, collector = HoldingApp(app_port), Collector(collector_port)
    proxy = Proxy(tmp_path, app_port, collector_port, Setup(concurrency=request.param))
    yield proxy, collector, request.param
    proxy.stop()
    collector.stop()
    app.stop()


def truth(records: list[Record], own: Record) -> tuple[int, int]:
    """In flight at this request's arrival, itself included; arrivals in the second before it."""
    inside = sum(r.sent <= own.sent < r.done for r in records)
    return inside, sum(own.sent - 1 <= r.sent < own.sent for r in records)


def agree(records: list[Record], spans: dict[str, Received], names: tuple[str, str], what: str) -> None:
    """The stamps' means are those of the truth within 5 %, and so is Little's law."""
    start = records[0].sent
    steady = [r for r in records if r.sent - start >= WARM_UP]
    true_inside, true_rate = (
        mean(column) for column in zip(*(truth(records, r) for r in steady), strict=True)
    )
    told_inside, told_rate = (mean(spans[r.trace].attributes[name] for r in steady) for name in names)
    assert told_inside == pytest.approx(true_inside, rel=0.05), f"{what}: in flight"
    assert told_rate == pytest.approx(true_rate, rel=0.05), f"{what}: arrival rate"
    # Little: what an arrival finds in the system is rate x time there, here over the same arrivals.
    holding = mean(r.done - r.sent for r in records)
    others = told_inside - 1
    assert others == pytest.approx(true_rate * holding, rel=0.25), f"{what}: L = rate x W"


def test_stamped_load_is_the_truth(workers) -> None:
    """Means of in-flight and of the last second's arrivals are within 5 % of the client's records, for
    the service and for each class; the stats count every arrival once and end at nothing in flight."""
    proxy, collector, count = workers
    records = drive(proxy.inbound, FLOWS, SECONDS, seed=count)
    received = collector.wait_for(lambda span: span.kind == SERVER, len(records))
    spans = {span.trace_id: span for span in received}
    agree(records, spans, NAMES[""], "service")
    stats = proxy.stats()
    for flow in FLOWS:
        own = [record for record in records if record.kind == flow.kind]
        if not flow.kind:
            assert all("spillway.load.class.in_flight" not in spans[r.trace].attributes for r in own)
            continue
        assert all(spans[r.trace].attributes["spillway.class"] == flow.kind for r in own)
        agree(own, spans, NAMES["class"], flow.kind)
        assert stats[f"inbound_class_arrivals.class.{flow.kind}"] == len(own)
        assert stats[f"inbound_class_in_flight.class.{flow.kind}"] == 0
    assert (stats["inbound_arrivals"], stats["inbound_in_flight"]) == (len(records), 0)


def test_classes_beyond_the_bound_share_a_stat(tmp_path) -> None:
    """Each of 256 classes has stats of its own; the rest is counted under one name and stamped with none."""
    names = tuple(f"cart GET /c{n}/{{id}}" for n in range(260))
    app_port, collector_port = free_ports(2)
    app, collector = HoldingApp(app_port), Collector(collector_port)
    proxy = Proxy(tmp_path, app_port, collector_port, Setup(concurrency=1, classes=names))
    try:
        flows = tuple(Flow(name, "GET", f"/c{n}/7", rate=2, hold_ms=1) for n, name in enumerate(names))
        records = drive(proxy.inbound, flows, 2.0, seed=3)
        received = collector.wait_for(lambda span: span.kind == SERVER, len(records))
        stats = proxy.stats()
        own = {name for name in stats if name.startswith("inbound_class_arrivals.class.cart")}
        assert len({record.kind for record in records}) > len(own) == 256
        counted = sum(stats[name] for name in own)
        assert counted + stats["inbound_class_arrivals.class._overflow"] == len(records)
        without = [s for s in received if "spillway.load.class.in_flight" not in s.attributes]
        assert len(without) == len(records) - counted
        assert all("spillway.class" in span.attributes for span in received)
    finally:
        proxy.stop()
        collector.stop()
        app.stop()

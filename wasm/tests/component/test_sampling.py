"""Ratio sampling: the start of a trace decides for all later hops, and load is unaffected."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from filter_harness.client import get, traced
from filter_harness.collector import CLIENT, SERVER, Collector
from filter_harness.proxy import Proxy, Setup
from filter_harness.stack import running

pytestmark = pytest.mark.component

RATIO, REQUESTS = 0.25, 600


@pytest.fixture
def quarter(tmp_path) -> Iterator[tuple[Proxy, Collector]]:
    with running(tmp_path, Setup(overrides={"sample_ratio": RATIO})) as stack:
        yield stack.proxy, stack.collector


def settled(proxy: Proxy, spans: int) -> dict[str, int]:
    """Returns the stats once that many spans are finished and sent.

    Workers update them on ticks.
    """
    return proxy.wait_stats(lambda stats: stats["spans_finished"] == stats["spans_sent"] == spans)


def test_ratio_of_traces_started_here(quarter) -> None:
    """A quarter of the traces is kept as a whole, with its threshold, so each stands for four.

    The others travel as unsampled. Every request counts as an arrival.
    """
    proxy, collector = quarter
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: get(proxy.outbound, "/users/1"), range(REQUESTS)))
    seen = [answer.seen["traceparent"].split("-") for answer in answers]
    kept = {trace for _, trace, _, flags in seen if flags == "03"}
    assert {flags for *_, flags in seen} == {"02", "03"}, "sampled or not, the id is random"
    assert len({trace for _, trace, _, _ in seen}) == REQUESTS
    deviation = (REQUESTS * RATIO * (1 - RATIO)) ** 0.5
    assert abs(len(kept) - REQUESTS * RATIO) < 5 * deviation
    stats = settled(proxy, 2 * len(kept))
    for kind in (CLIENT, SERVER):
        assert {span.trace_id for span in collector.spans if span.kind == kind} == kept
    assert len(collector.spans) == 2 * len(kept)
    assert {span.state for span in collector.spans} == {"ot=th:c"}, "1 - 0xc / 16 is a quarter"
    # The threshold applies to the last 56 bits of the trace id, so any other sampler would agree.
    assert all((int(trace[-14:], 16) >= 0xC << 52) == (trace in kept) for _, trace, _, _ in seen)
    for answer in answers:
        sampled = answer.seen["traceparent"].endswith("03")
        assert answer.seen.get("tracestate") == ("ot=th:c" if sampled else None)
    assert stats["inbound_arrivals"] == stats["outbound_arrivals"] == REQUESTS


def test_continued_decisions_are_honoured(quarter) -> None:
    """The start of a trace decides: sampled traces keep their threshold, others leave no span."""
    proxy, collector = quarter
    sampled, unsampled = [], []
    for nth in range(40):
        trace, _, headers = traced(sampled=nth % 2 == 0)
        (sampled if nth % 2 == 0 else unsampled).append(trace)
        answer = get(proxy.outbound, "/users/1", {**headers, "tracestate": "v=1,ot=th:8"})
        assert answer.seen["tracestate"] == "v=1,ot=th:8"
        assert answer.seen["traceparent"].startswith(f"00-{trace}-")
    settled(proxy, 2 * len(sampled))
    assert {span.trace_id for span in collector.spans} == set(sampled)
    assert {span.state for span in collector.spans} == {"v=1,ot=th:8"}
    assert not {span.trace_id for span in collector.spans} & set(unsampled)

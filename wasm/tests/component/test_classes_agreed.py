"""All workers agree on the classes that have load stats of their own.

The order in which each worker meets the classes does not matter.
"""

import random
from collections import Counter

import pytest
from filter_harness.client import get
from filter_harness.collector import SERVER
from filter_harness.openloop import HoldingApp
from filter_harness.proxy import Setup
from filter_harness.stack import running

pytestmark = pytest.mark.component

NAMES = [f"cart GET /c{n}/{{id}}" for n in range(320)]
ROUNDS = 8


def test_a_class_is_its_own_on_every_worker_or_on_none(tmp_path) -> None:
    """Two workers meet 320 classes in different orders, each class several times.

    256 classes have stats of their own, which count all of their requests. The others share one
    stat. Either all spans of a class are stamped with its load, or none is.
    """
    met = [n for n in range(len(NAMES)) for _ in range(ROUNDS)]
    random.Random(5).shuffle(met)
    with running(tmp_path, Setup(concurrency=2, classes=tuple(NAMES)), HoldingApp) as stack:
        for n in met:
            # Each request has its own connection, so the kernel spreads them over the workers.
            assert get(stack.proxy.inbound, f"/c{n}/7").status == 200
        received = stack.collector.wait_for(lambda span: span.kind == SERVER, len(met))
        stats = stack.proxy.stats()
    prefix = "inbound_class_arrivals.class."
    counts = {name.removeprefix(prefix): count for name, count in stats.items() if name.startswith(prefix)}
    assert counts.pop("_overflow") == ROUNDS * (len(NAMES) - 256)
    assert len(counts) == 256 and set(counts.values()) == {ROUNDS}
    stamped = Counter(
        span.attributes["spillway.class"]
        for span in received
        if "spillway.load.class.in_flight" in span.attributes
    )
    assert stamped == counts
    assert all("spillway.class" in span.attributes for span in received)

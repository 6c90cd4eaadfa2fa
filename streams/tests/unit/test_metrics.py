"""GET /metrics of a job."""

import asyncio
import urllib.request
from pathlib import Path

import pytest
from faust.types import TP
from prometheus_client.parser import text_string_to_metric_families
from spillway_lab.testing import servers
from spillway_runtime.metrics import table
from spillway_runtime.status import Status
from spillway_streams.process import health, metrics
from spillway_streams.process.counters import Counters
from spillway_streams.process.lag import Lag

REFERENCE = Path(__file__).parents[2] / "REFERENCE.md"
TP0, TP1 = TP("calls", 0), TP("calls", 1)


async def test_metrics_and_the_reference_agree():
    """Before anything has happened, the listener serves exactly the families in REFERENCE.md."""
    port = servers.free_port()
    exposition = metrics.exposition(Status("kafka"), Counters(), Lag())
    runner = await health.serve(f"127.0.0.1:{port}", Status("kafka"), Counters(), exposition)
    try:
        answer = await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics", None, 30)
        with answer:
            text = answer.read().decode()
    finally:
        await runner.cleanup()
    assert table(metrics.FAMILIES) in REFERENCE.read_text(), f"paste:\n{table(metrics.FAMILIES)}"
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE spillway_")}
    assert served == {family.name for family in metrics.FAMILIES}


def _samples(counters: Counters, lag: Lag | None = None) -> dict[tuple[str, str], float]:
    status = Status("kafka", "clickhouse")
    status.ok("kafka")
    text = metrics.exposition(status, counters, lag or Lag()).text().decode()
    return {
        (sample.name.removeprefix("spillway_streams_"), ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_counter_is_served_once():
    """Counters with a family have their label in it, others their name. None is served twice."""
    counters = Counters()
    for n, name in enumerate(
        ("dead_letters: oversized", "stored_rows: calls", "fits_failed", "late_trace", "traces"), start=1
    ):
        counters.add(name, n)
    counters.gauge("open_spans", 7)
    found = _samples(counters)
    assert found["dead_letters_total", "oversized"] == 1
    assert found["stored_rows_total", "calls"] == 2
    assert found["errors_total", "fits_failed"] == 3
    assert found["counted_total", "late_trace"] == 4
    assert found["traces_total", ""] == 5
    assert found["state", "open_spans"] == 7
    assert [name for name, _ in found].count("counted_total") == 1
    assert (found["dependency_up", "kafka"], found["dependency_up", "clickhouse"]) == (1, 0)


def test_lag_is_what_waits_and_for_how_long():
    """Lag in records is the distance from the last taken one to the end of the log.

    The oldest waiting record arrived after the last one taken, or after the last query that found
    none.
    """
    lag = Lag()
    lag.starts({TP0: 10, TP1: 0}, 1000.0)
    lag.ends({TP0: 30, TP1: 0}, 1001.0)
    assert dict(lag.records()) == {TP0: 20, TP1: 0}
    assert dict(lag.seconds(1005.0)) == {TP0: 5.0, TP1: 0.0}
    lag.took(TP0, 10, 400.0)  # from an old backlog
    assert dict(lag.seconds(1005.0))[TP0] == 605.0
    lag.took(TP0, 29, 990.0)
    assert dict(lag.records())[TP0] == 0
    assert lag.newest() == {"calls": 990.0}
    lag.ends({TP0: 30, TP1: 1}, 2000.0)  # one record after a long idle time
    assert dict(lag.seconds(2000.5)) == {TP0: 0.0, TP1: pytest.approx(999.5)}
    lag.starts({TP1: 0}, 2001.0)
    assert dict(lag.records()) == {TP1: 0}
    lag.took(TP0, 40, 1.0)  # the partition belongs to another worker by now
    assert lag.newest() == {}

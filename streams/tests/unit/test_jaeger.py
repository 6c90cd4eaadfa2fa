"""Jaeger traces, and what the pure part of the pipeline makes of real ones."""

import json

import numpy as np
import pytest
from spillway_native import Partition
from spillway_streams.batches import columns, native_batch
from spillway_streams.load.cpu import CpuTable
from spillway_streams.load.load import LoadTable
from spillway_streams.model.modelling import Modeller, Options
from spillway_streams.process.counters import Counters
from spillway_streams.recorded import jaeger

READ_MS = 1_790_000_000_000  # after the traces were made
CLASSES = {
    "frontend GET /hotels",
    "search POST /search.Search/Nearby",
    "geo POST /geo.Geo/Nearby",
    "rate POST /rate.Rate/GetRates",
    "profile POST /profile.Profile/GetProfiles",
    "reservation POST /reservation.Reservation/CheckAvailability",
}


def _calls_of(files) -> tuple[columns.Columns, columns.Columns, dict[str, int]]:
    """Returns calls, edges, and counts of unusable spans, of all traces of these files."""
    partition = Partition(first_offset=0, log_start=True, partitions=1)
    traces = jaeger.in_time_order(trace for file in files for trace in jaeger.read(file))
    for offset, batch in enumerate(jaeger.batches(traces, "c1")):
        assert partition.add(batch.SerializeToString(), offset, READ_MS) == []
    partition.advance(READ_MS + 200_000)
    closed = [*iter(partition.close, None)]

    def rows(name: str, schema: columns.Schema) -> columns.Columns:
        batches = [getattr(tick, name) for tick in closed]
        parts = [native_batch.as_python(schema, native_batch.read(schema, batch)) for batch in batches]
        return columns.concat(schema, parts)

    return rows("calls", columns.CALLS), rows("edges", columns.EDGES), partition.counters()


def test_real_traces_lose_nothing(hotel_reservation):
    """1 000 traces of 11 spans give 6 calls and 5 edges each.

    Classes are the application's endpoints. Sampling is corrected. No span is unusable.
    """
    calls, edges, odd = _calls_of(hotel_reservation[:1])
    assert columns.length(calls) == 6000 and columns.length(edges) == 5000
    assert set(calls["class"]) == CLASSES
    assert calls["adjusted_count"].mean() == pytest.approx(1 / 0.3)
    assert odd == {}
    assert (calls["exclusive_us"] <= calls["duration_us"]).all()


def test_curves_of_real_traces_rise_with_load(hotel_reservation):
    """All six loads, without CPU metrics: every class gets a fitted curve that rises with load.

    At the mean utilisation, the curve is within 25 % of the mean of the data.
    """
    calls, _, _ = _calls_of(hotel_reservation)
    table = LoadTable(3600, Counters())
    table.add(calls)
    curves, capacities = Modeller(Options()).fit(table, CpuTable(3600), 0)
    assert {row[3] for row in curves} == CLASSES and {row[13] for row in curves} == {"retrain"}
    assert {row[5] for row in capacities} == {"curve"}
    for row in curves:
        a, b, u_max = row[4], row[5], row[10]
        assert a > 0 and a / (1 - u_max) + b > a + b
        mean = np.mean(calls["exclusive_us"][calls["class"] == row[3]]) / 1000
        assert a / (1 - (row[9] + u_max) / 2) + b == pytest.approx(mean, rel=0.25)


def test_a_file_that_is_not_jaeger_json_is_named(tmp_path):
    """The error names the file and what is missing in it."""
    file = tmp_path / "x.json"
    for text in ("nonsense", "{}", '{"data": 3}'):
        file.write_text(text)
        with pytest.raises(jaeger.JaegerError, match=r"x\.json"):
            jaeger.read(file)
    with pytest.raises(jaeger.JaegerError, match="trace 7"):
        jaeger.convert(json.loads('{"traceID": "7", "spans": [{"tags": []}]}'), "c1")

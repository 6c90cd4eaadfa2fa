"""What a footprint counts and sums up. No stack is needed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from spillway_lab.experiments import footprint
from spillway_lab.experiments.footprint import Footprint
from spillway_lab.experiments.freshness import Boards, Reading
from spillway_lab.load.machine import Busyness
from spillway_lab.load.meter import LAB, SUPERVISOR, Measured
from spillway_lab.load.samples import Samples, summarise
from spillway_lab.report.progress import Progress
from spillway_lab.scenario import scenario
from spillway_lab.scenario.application import parse
from spillway_lab.scenario.errors import LabError

SCENARIO = scenario.load(Path(__file__).parents[2] / "benchmarks/footprint.yaml")
NO_REQUESTS = summarise(Samples(*(np.array([], kind) for kind in (float, float, int, int, str, int))))
IDLE = Measured(30.0, {("kafka", "java"): 0.02, (SUPERVISOR, "process-compose"): 0.01, (LAB, "python"): 0.5})
LOADED = Measured(
    60.0,
    {
        ("kafka", "java"): 0.1,
        ("collector-west", "otelcol"): 0.2,
        ("streams-graph", "python"): 0.3,
        ("streams-graph", "python (ended children)"): 0.05,
        ("west-gateway-0-envoy", "envoy"): 1.0,
        (LAB, "vegeta"): 0.5,
    },
    Busyness(2, 0.8, 0.1),
)


def found() -> Footprint:
    boards = Boards([Reading(10.0, {("west", "a GET /"): 9.0}), Reading(11.0, {("west", "a GET /"): 10.5})])
    return Footprint(IDLE, LOADED, boards, 990.0, NO_REQUESTS)


def test_the_pipeline_is_the_jobs_between_proxies_and_rulesets() -> None:
    pipeline = ["streams-graph", "streams", "clickhouse", "kafka", "collector-a", "optimizer", "papa"]
    pipeline += ["publisher", "relay-a", "relay-a-2", "nats", "redis"]
    others = ["toxiproxy", "wan", SUPERVISOR, LAB, "a-gateway-0", "a-gateway-0-envoy"]
    assert all(map(footprint.is_pipeline, pipeline))
    assert not any(map(footprint.is_pipeline, others))


def test_what_measures_is_not_part_of_what_is_measured() -> None:
    """Idle is everything of the stack; under load the pipeline is counted by itself."""
    line = footprint.document(found())
    assert line["idle_cores"] == pytest.approx(0.03)
    assert line["idle_pipeline_cores"] == pytest.approx(0.02)
    assert line["pipeline_cores_at_1k"] == pytest.approx(0.65)


def test_the_document_is_json_with_every_process_and_the_machine() -> None:
    line = json.loads(json.dumps(footprint.document(found())))
    assert line["by_process"]["kafka"]["java"] == {"idle": 0.02, "load": 0.1}
    assert line["by_process"]["streams-graph"]["python (ended children)"] == {"idle": 0.0, "load": 0.05}
    assert line["machine"] == {"utilisation": 0.8, "pressure": 0.1}
    assert line["disturbed"] is True
    assert (line["spans_per_s"], line["freshness_p99_s"]) == (990.0, pytest.approx(0.495))


def test_boards_that_were_never_read_have_an_unknown_age() -> None:
    """The document is strict JSON, in which unknown is null."""
    line = footprint.document(replace(found(), boards=Boards([])))
    assert json.loads(json.dumps(line, allow_nan=False))["freshness_p99_s"] is None


class Counts:
    """A client of ClickHouse that counts these spans, one number for each question."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = [*numbers]

    def execute(self, *_: object) -> list[tuple[int]]:
        return [(self._numbers.pop(0) if len(self._numbers) > 1 else self._numbers[0],)]


def stored(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> int:
    monkeypatch.setattr(footprint, "_POLL_S", 0.001)
    monkeypatch.setattr(footprint, "_STEADY_S", 0.05)
    monkeypatch.setattr(footprint, "_STORED_S", 1.0)
    return footprint._stored(cast(Any, Counts(*numbers)), 0.0, 1.0, Progress())


def test_spans_are_counted_once_their_number_is_steady(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stored(monkeypatch, 0, 0, 7, 9, 9, 12) == 12


@pytest.mark.parametrize("numbers", [(0,), (*range(1, 100_000),)])
def test_spans_that_are_not_all_stored_are_an_error(monkeypatch: pytest.MonkeyPatch, numbers: tuple) -> None:
    """A rate of spans that is too low would make the pipeline look expensive."""
    with pytest.raises(LabError, match="their number is not steady"):
        stored(monkeypatch, *numbers)


def test_the_table_has_the_pipeline_first_and_the_busiest_first() -> None:
    rows = footprint.table(IDLE, LOADED).splitlines()[2:]
    jobs = [row.split()[0] for row in rows]
    assert jobs[:4] == ["streams-graph", "collector-west", "kafka", "streams-graph"]
    assert jobs[4:] == ["west-gateway-0-envoy", LAB, LAB, SUPERVISOR]


def test_every_call_makes_a_span_at_both_ends_and_the_entry_one() -> None:
    application, requests = SCENARIO.application, SCENARIO.document.requests
    assert footprint.spans_per_request(application, requests) == 5


def test_calls_count_as_often_as_they_happen_on_average() -> None:
    """Calls that are repeated or only probable are weighted, and classes by their shares."""

    def service(*endpoints: dict) -> dict:
        defaults = {"method": "GET", "response_bytes": 1}
        defaults["service_time"] = {"distribution": "constant", "mean_ms": 1}
        shared = {"workers": 1, "queue": 1, "queue_timeout_ms": 1}
        return shared | {"endpoints": [defaults | endpoint for endpoint in endpoints]}

    def call(name: str, **more: float) -> list[dict]:
        return [{"service": name, "method": "GET", "path": "/"} | more]

    services = {
        "a": service({"path": "/", "calls": [call("b", count=3), call("c")]}, {"path": "/none"}),
        "b": service({"path": "/", "calls": [call("c", probability=0.5)]}),
        "c": service({"path": "/"}),
    }
    application = parse(Path("test"), {"call_timeout_ms": 1, "services": services})
    requests = [
        scenario.Request(service="a", method="GET", path="/", share=3),
        scenario.Request(service="a", method="GET", path="/none"),
    ]
    # "/" makes three calls to b, each with half a call to c, and one to c: 5.5 calls.
    assert footprint.spans_per_request(application, requests) == pytest.approx(0.75 * 12 + 0.25)


def test_a_load_is_scaled_in_its_proportions() -> None:
    assert footprint.scaled({"west": 130, "east": 70}, 100) == pytest.approx({"west": 65, "east": 35})

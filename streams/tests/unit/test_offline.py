"""Recorded traces to a model.

The data are twelve of the Hotel Reservation traces of the TraceWeaver project (Apache License 2.0),
reduced to what is read, in data/hotel_reservation.json, and the golden spans in OTLP JSON.
"""

import gzip
import json
from pathlib import Path

import pytest
from spillway_runtime import command_line
from spillway_streams.commands import model as offline_cli
from spillway_streams.recorded import offline

GOLDEN = Path(__file__).resolve().parents[3] / "contracts" / "golden"
RECORDED = Path(__file__).parent / "data" / "hotel_reservation.json"
SPANS = json.loads((GOLDEN / "1_spans.json").read_text())
TOPOLOGY = str(GOLDEN / "topology.yaml")


@pytest.fixture
def run(capsys):
    """Runs `model ARGUMENTS`. Returns (exit status, document or None, stderr)."""

    def _run(*arguments: object) -> tuple[int, dict | None, str]:
        given = [*map(str, arguments), "--topology", TOPOLOGY]
        status = command_line.run(offline_cli.command, "model", given)
        output = capsys.readouterr()
        return status, json.loads(output.out) if output.out else None, output.err

    return _run


def _jaeger(change=None) -> dict:
    document = json.loads(RECORDED.read_text())
    if change:
        change(document)
    return document


def test_real_traces_become_a_model_of_one_cluster(run):
    """Twelve traces kept with probability 0.3 are 40 requests. Each calls five services once."""
    status, document, output = run("--traces", RECORDED, "--cluster", "west")
    assert status == 0
    [(class_id, demand)] = document["demand"]["west"].items()
    assert class_id == "frontend GET /hotels" and list(document["demand"]) == ["west"]
    seconds = 12 / 0.3 / demand["rps"]
    assert seconds == pytest.approx(round(seconds)) and 1 <= seconds <= 3
    ratios = {
        (row["source_class"].split()[0], row["service"]): row["calls_per_request"]
        for row in document["call_ratios"]
    }
    pairs = (
        ("frontend", "search"),
        ("frontend", "profile"),
        ("frontend", "reservation"),
        ("search", "geo"),
        ("search", "rate"),
    )
    assert ratios == dict.fromkeys(pairs, 1.0)
    assert {row["class"] for row in document["curves"]} == set(document["load"]["west"])
    assert "no span tells a size" in output


def test_a_document_has_the_keys_of_the_golden_model(run):
    """The optimizer reads both: tables have the same columns, and boards the same fields."""
    _, document, _ = run("--traces", GOLDEN / "1_spans.json")
    golden = json.loads((GOLDEN / "3_model.json").read_text())
    assert document.keys() == golden.keys()
    for table in ("curves", "capacities", "call_ratios", "network_times"):
        assert document[table][0].keys() == golden[table][0].keys()
    for board in ("load", "demand"):
        assert {c: set(by) for c, by in document[board].items()} == {
            c: set(by) for c, by in golden[board].items()
        }
        for cluster, by in golden[board].items():
            for class_id, entry in by.items():
                assert document[board][cluster][class_id].keys() == entry.keys()
    assert document["call_ratios"][0]["response_bytes"] == golden["call_ratios"][0]["response_bytes"]
    assert document["network"]["west>east"]["mean_ms"] == golden["network"]["west>east"]["mean_ms"]


def test_files_of_a_collector_per_cluster_are_put_together(run, tmp_path):
    """Each cluster's spans are in a gzipped file of their own, with one object per line.

    The model is that of a single file, even where a trace has spans in both files.
    """
    _, whole, _ = run("--traces", GOLDEN / "1_spans.json")
    files = {}
    for resource_spans in SPANS["resourceSpans"]:
        attributes = {a["key"]: a["value"]["stringValue"] for a in resource_spans["resource"]["attributes"]}
        [cluster] = [value for key, value in attributes.items() if "cluster" in key]
        files.setdefault(cluster, []).append(json.dumps({"resourceSpans": [resource_spans]}))
    assert len(files) == 2
    for cluster, lines in files.items():
        (tmp_path / f"{cluster}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    _, parts, _ = run("--traces", *sorted(tmp_path.glob("*.gz"), reverse=True))
    assert parts == whole


def test_a_tag_tells_the_cluster(run, tmp_path):
    """Jaeger process tags place services: search, geo and rate in east, the others in west."""

    def tag(document):
        for trace in document["data"]:
            for process in trace["processes"].values():
                there = process["serviceName"] in ("search", "geo", "rate")
                process["tags"] = [{"key": "zone", "value": "east" if there else "west"}]

    (tmp_path / "x.json").write_text(json.dumps(_jaeger(tag)))
    status, document, _ = run("--traces", tmp_path / "x.json", "--cluster-attribute", "zone")
    assert status == 0 and list(document["demand"]) == ["west"]
    assert {key.split()[0] for key in document["load"]["east"]} == {"search", "geo", "rate"}
    assert {"west>east", "east>east", "west>west"} == set(document["network"])
    assert document["demand"]["west"]["frontend GET /hotels"]["rps"] > 12, (
        "sampling is known in both clusters"
    )


def test_time_between_two_recordings_does_not_count(run, tmp_path):
    """The same load recorded again a day later is the same demand, not a load close to zero."""

    def later(document):
        for trace in document["data"]:
            for span in trace["spans"]:
                span["startTime"] += 86_400_000_000
                for key in ("traceID", "spanID"):
                    span[key] = "f" + span[key][1:]
                for reference in span["references"]:
                    reference["spanID"] = "f" + reference["spanID"][1:]

    (tmp_path / "later.json").write_text(json.dumps(_jaeger(later)))
    _, once, _ = run("--traces", RECORDED, "--cluster", "west")
    _, twice, _ = run("--traces", RECORDED, tmp_path / "later.json", "--cluster", "west")
    demand = [d["demand"]["west"]["frontend GET /hotels"]["rps"] for d in (once, twice)]
    assert demand[1] == pytest.approx(demand[0])


def test_recorded_seconds_leave_out_gaps_only():
    """Two recordings an hour apart are 10 s and 36 s. A quiet half minute within one counts."""
    at = [*range(100, 110), *range(3700, 3705), 3735]
    calls = {"started_at": offline.np.array(at) * 1_000_000}
    assert offline.recorded_s(calls) == 10 + 36


def _without_start(document):
    del document["data"][3]["spans"][2]["startTime"]


def _without_process(document):
    document["data"][1]["processes"].clear()


def _of_trace(**change):
    """The first trace, with some keys of the trace or of its first span changed."""

    def changed(document):
        trace = document["data"][0]
        for key, value in change.items():
            if key == "tags":
                trace["spans"][0]["tags"] = value
            elif key == "references":
                trace["spans"][0]["references"] = value
            else:
                trace[key] = value

    return json.dumps(_jaeger(changed))


@pytest.mark.parametrize(
    ("text", "arguments", "reason"),
    [
        ('{"data": [\n{"spans": }\n]}', ("--cluster", "west"), r"x.json:2:11: not JSON"),
        ('{"resourceSpans": []}\n{"resourceSpans": [}', (), r"x.json:2:20: not JSON"),
        ("[]", (), "neither Jaeger JSON (an object with 'data') nor OTLP JSON"),
        ('{"data": {}}', (), "data: dict, must be a list of traces"),
        (json.dumps(_jaeger(_without_start)), ("--cluster", "west"), "data[3].spans[2].startTime: missing, must be a whole"),
        (json.dumps(_jaeger(_without_process)), ("--cluster", "west"), "data[1].processes["),
        (_of_trace(processes=None), ("--cluster", "west"), "data[0].processes: null, must be an object"),
        (_of_trace(processes={"p1": None}), ("--cluster", "west"), "data[0].processes['p1']: null, must be an object"),
        (_of_trace(processes={"p1": {"tags": 5}}), ("--cluster", "west"), "processes['p1'].tags: 5, must be a list"),
        (_of_trace(spans={"a": 1}), ("--cluster", "west"), 'data[0].spans: {"a": 1}, must be a list'),
        (_of_trace(spans=[7]), ("--cluster", "west"), "data[0].spans[0]: 7, must be an object"),
        (_of_trace(tags=[{"key": "x"}]), ("--cluster", "west"), "data[0].spans[0].tags[0].value: missing, of tag 'x'"),
        (_of_trace(tags=["x"]), ("--cluster", "west"), 'data[0].spans[0].tags[0]: "x", must be an object'),
        (_of_trace(references=[{}]), ("--cluster", "west"), "data[0].spans[0].references[0].refType: missing, must be a"),
        ("[" * 100_000, ("--cluster", "west"), "x.json:1: nested too deep"),
        (json.dumps(_jaeger()), (), "--cluster or --cluster-attribute tells"),
        (json.dumps(_jaeger()), ("--cluster-attribute", "zone"), "no attribute 'zone'"),
        (json.dumps(_jaeger()), ("--cluster-attribute", "span.kind"), "' is not in the topology; it has east, west"),
        (json.dumps(_jaeger()), ("--cluster", "north"), "--cluster: 'north' is not in"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}', (), "x.json: not OTLP JSON"),
        ('{"data": []}', ("--cluster", "west"), "0 traces, none with a server span"),
        (json.dumps(_jaeger()), ("--cluster", "west", "--min-samples", "0"), "--min-samples: 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(run, tmp_path, text, arguments, reason):
    """Line and column of invalid JSON, index and key of what is missing, and the known clusters."""
    (tmp_path / "x.json").write_text(text)
    status, document, output = run("--traces", tmp_path / "x.json", *arguments)
    assert status == 1 and document is None
    assert reason in output


def test_a_file_that_is_not_there_is_named(run):
    status, _, output = run("--traces", "nowhere.json", "--cluster", "west")
    assert status == 1 and "nowhere.json: cannot be read" in output


def test_a_damaged_archive_is_named(run, tmp_path):
    """Wrong bytes in the middle, or a missing end."""
    packed = bytearray(gzip.compress(RECORDED.read_bytes()))
    (tmp_path / "short.json.gz").write_bytes(packed[:-2000])
    packed[200:400] = b"\xff" * 200
    (tmp_path / "torn.json.gz").write_bytes(packed)
    for name in ("short.json.gz", "torn.json.gz"):
        status, document, output = run("--traces", tmp_path / name, "--cluster", "west")
        assert status == 1 and document is None
        assert f"{name}: cannot be read" in output

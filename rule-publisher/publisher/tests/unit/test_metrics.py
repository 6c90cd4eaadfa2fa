"""GET /metrics of the publisher."""

import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_lab.testing import servers
from spillway_publisher.process.telemetry import CLICKHOUSE, NATS, Telemetry
from spillway_publisher.service import metrics
from spillway_runtime import health
from spillway_runtime.metrics import table

REFERENCE = Path(__file__).parents[2] / "REFERENCE.md"


def test_metrics_and_the_reference_agree():
    """The endpoint serves exactly the families of REFERENCE.md's table, before any event."""
    port = servers.free_port()
    telemetry = Telemetry()
    server = health.Server(
        f"127.0.0.1:{port}", telemetry.report, metrics.exposition(telemetry, dict, lambda: 0)
    )
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert table(metrics.FAMILIES) in REFERENCE.read_text(), f"paste:\n{table(metrics.FAMILIES)}"
    served = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE spillway_")}
    assert served == {family.name for family in metrics.FAMILIES}


def test_every_counter_is_served_once_with_what_is_in_force():
    """Refusals have their cause and answers their cluster, although its name has a dot.

    Versions, expiry and waiting rows are served too.
    """
    telemetry = Telemetry()
    telemetry.servers.ok(NATS)
    telemetry.servers.failed(CLICKHOUSE, "away")
    for n, name in enumerate(
        (
            "proposals.refused",
            "refused.guardrails",
            "acks.nack.eu.west",
            "malformed.acks.time",
            "nats.errors",
        ),
        1,
    ):
        telemetry.counters[name] += n
    telemetry.counters["acks"] += 3
    ruleset = Ruleset(version=12)
    ruleset.expires_at.FromMilliseconds(1_800_000_000_500)
    rules = [ruleset.rules.add(source_cluster="eu.west") for _ in range(2)]
    rules[0].destinations.add(cluster="eu.west", weight=5000)
    rules[0].destinations.add(cluster="us", weight=5000)
    rules[1].destinations.add(cluster="us", weight=10_000)
    text = metrics.exposition(telemetry, lambda: {"eu.west": ruleset}, lambda: 44).text().decode()
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    found = {
        (s.name.removeprefix("spillway_publisher_"), ",".join(s.labels.values())): s.value for s in samples
    }
    expected = {
        ("ready", ""): 1,
        ("server_up", "nats"): 1,
        ("server_up", "clickhouse"): 0,
        ("proposals_total", "refused"): 1,
        ("refused_proposals_total", "guardrails"): 2,
        ("acknowledgements_total", "eu.west,nack"): 3,
        ("malformed_total", "acks.time"): 4,
        ("counted_total", "nats.errors"): 5,
        ("ruleset_version", "eu.west"): 12,
        ("ruleset_expiry_timestamp_seconds", "eu.west"): 1_800_000_000.5,
        ("ruleset_local_share_ratio", "eu.west"): 0.25,
        ("history_rows_waiting", ""): 44,
        ("history_dropped_rows_total", ""): 0,
    }
    assert {key: found.get(key) for key in expected} == expected
    assert sum(name == "counted_total" for name, _ in found) == 1

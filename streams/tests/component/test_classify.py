"""The job classify with real Kafka and ClickHouse.

Rules appear, pins take precedence, and services are divided among workers.
"""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from feeding import feed, sequences
from simulated import Kind, batches, exponential
from spillway_contracts import names
from spillway_lab.testing.waiting import eventually
from spillway_streams.batches import columns
from spillway_streams.batches.strings import Strings
from spillway_streams.classes import rules, tables

FAST = {"SPILLWAY_STREAMS_CLASS_PERIOD_S": "0.5", "SPILLWAY_STREAMS_CLASS_CONFIRM": "2"}
ALIKE = [Kind("/a/b", exponential(5)), Kind("/a/c", exponential(5)), Kind("/a/slow", exponential(25))]
FINDINGS = (
    "SELECT class, verdict FROM class_findings WHERE service = %(s)s ORDER BY found_at LIMIT 1 BY class"
)


def _payload(kinds: list[Kind], seed: int, service: str) -> bytes:
    """Returns a batch of calls as the job `exclusive` sends it.

    Columns that classify does not read are zero or empty.
    """
    calls, _ = batches(kinds, seed, service=service)
    n = len(calls["trace_id"])
    calls["service"] = Strings.of([service] * n)
    rest = columns.from_rows(columns.CALLS, [])
    full = {
        name: calls.get(name, np.zeros(n, column.dtype if hasattr(column, "dtype") else "i8"))
        for name, column in rest.items()
    }
    return columns.to_ipc(columns.CALLS, full)


def _rules(clickhouse, service: str) -> list[rules.Rule]:
    found = tables.read_rules(clickhouse.execute(tables.RULES_SQL))
    return sorted((rule for rule in found if rule.service == service), key=lambda rule: rule.template)


@pytest.fixture
def send(kafka):
    """Provides send(partition, payloads), which sends each payload of calls as a batch."""
    tick = int(time.time() * 2)

    def run(partition: int, payloads: list[bytes]) -> None:
        nonlocal tick
        feed(kafka, names.KAFKA_TOPIC_CALLS, partition, sequences(0, payloads, tick))
        tick += len(payloads)

    return run


@pytest.fixture
def cli(clickhouse_url):
    """Provides `python -m spillway_streams classes ...`: arguments -> (exit status, output)."""

    def run(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "spillway_streams", "classes", *arguments]
        environment = os.environ | {"SPILLWAY_CLICKHOUSE_URL": clickhouse_url}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_alike_classes_merge_and_pinned_ones_do_not(jobs, send, clickhouse, cli):
    """Two services have the same traffic, and one of them has a pin.

    The other service's alike classes get rules that take effect a minute later. The commands list
    and explain them. Garbage on the topic becomes a dead letter.
    """
    free, pinned = "classify-free", "classify-pinned"
    status, text = cli(
        "pin", "--service", pinned, "/a/b", "--keep", "--reason", "billed apart", "--by", "ops"
    )
    assert status == 0 and "60 s" in text
    send(0, [_payload(ALIKE, 1, free), b"no Arrow", _payload(ALIKE, 1, pinned)])
    job = jobs("classify", **FAST)
    merged = [("/a/b", "/a/{id}", "merged"), ("/a/c", "/a/{id}", "merged")]
    seen = lambda: [(r.template, r.becomes, r.kind) for r in _rules(clickhouse, free)]  # noqa: E731
    eventually(lambda: seen() == merged, "merged", seen=lambda: (seen(), job.counters(), job.tail()))
    assert all(r.effective_from - r.written_at >= rules.DELAY_MS for r in _rules(clickhouse, free))
    assert all(r.p_value > 0.01 and r.samples >= 1000 for r in _rules(clickhouse, free))
    [pin] = _rules(clickhouse, pinned)
    assert (pin.template, pin.becomes, pin.kind, pin.author) == ("/a/b", "/a/b", "pinned", "ops")
    classes = {f"{pinned} GET /a/b", f"{pinned} GET /a/slow"}
    findings = lambda: dict(clickhouse.execute(FINDINGS, {"s": pinned}))  # noqa: E731
    eventually(lambda: classes <= findings().keys(), "findings of the pinned one", seen=job.tail)
    found = findings()
    assert found[f"{pinned} GET /a/b"] in ("unsure", "pinned") and found[f"{pinned} GET /a/slow"] == "kept"
    assert job.counters()["dead_letters: undecodable"] == 1 and "decisions_failed" not in job.counters()

    status, text = cli("list", "--service", free, "--json")
    listed = json.loads(text)
    assert status == 0 and {r["template"] for r in listed["rules"]} == {"/a/b", "/a/c"}
    assert {c["class"] for c in listed["classes"]} == {f"{free} GET /a/slow"}
    assert "merged" in cli("explain", f"{free} GET /a/c")[1]
    assert cli("unpin", "--service", pinned, "/a/b", "--reason", "no more")[0] == 0
    eventually(
        lambda: cli("unpin", "--service", pinned, "/a/b", "--reason", "again")[0] == 1, "the pin's end"
    )


def test_services_are_shared_among_workers(jobs, send, clickhouse):
    """Two workers decide for the services of their partitions.

    Each batch is read by one of them. When one worker ends, the other decides for all services.
    """
    services = {partition: f"classify-shared-{partition}" for partition in range(4)}
    workers = [jobs("classify", **FAST) for _ in range(2)]
    counted = lambda: [worker.counters().get("calls", 0) for worker in workers]  # noqa: E731
    seed = 0

    def both_are_at_it() -> bool:
        nonlocal seed
        seed += 1
        for partition, service in services.items():
            kinds = [Kind("/x", exponential(5), 400)]
            send(partition, [_payload(kinds, seed, service)])
        return all(counted())

    eventually(both_are_at_it, "calls at both workers", seen=counted)
    eventually(lambda: all(clickhouse.execute(FINDINGS, {"s": s}) for s in services.values()), "findings")
    decided = lambda worker: worker.counters().get("decisions", 0)  # noqa: E731
    eventually(
        lambda: all(map(decided, workers)), "decisions of both", seen=lambda: [w.counters() for w in workers]
    )

    workers[0].process.kill()
    workers[0].process.wait()
    for partition in services:
        kinds = [Kind("/later", exponential(5), 400)]
        send(partition, [_payload(kinds, 99, services[partition])])
    later = lambda s: f"{s} GET /later" in dict(clickhouse.execute(FINDINGS, {"s": s}))  # noqa: E731
    eventually(lambda: all(map(later, services.values())), "findings of the other", seen=workers[1].tail)

"""Questions of docs/sql about calls, compared with figures computed from the traces alone.

The traces are those of HotelReservation.
"""

import math
import os
import statistics
import subprocess
from collections import Counter, defaultdict

import hotel
import hotel_rows
import pytest
from hotel import AWAY, HOME, WEIGHT, mean, recorded
from hotel_control import CAPACITY, CLASS, PUBLISHED
from hotel_rows import also
from spillway_lab.commands.sql import FOLDER
from spillway_lab.report import questions

pytestmark = pytest.mark.component

USD = 0.02


def test_where_the_time_of_a_class_goes(ask, calls, made):
    """Each request of the entry class causes one call of each of five others.

    Each class has its own mean exclusive and network time, in percent of the sum. For a class in
    the middle of the tree, only its part is returned.
    """
    rows = {row["class"].strip(): row for row in ask("where_time_goes", **{"class": CLASS["frontend"]})}
    assert set(rows) == set(CLASS.values())
    exclusive_ms = {s: mean([c.exclusive / 1000 for c in calls if c.service == s]) for s in CLASS}
    network = {
        s: mean([(m.network or 0) / 1000 for m in made if m.destination == s])
        for s in CLASS
        if s != "frontend"
    }
    roots = sum(c.is_entry for c in calls)
    for service, class_id in CLASS.items():
        asked = sum(m.destination == service for m in made) / roots if service != "frontend" else 1
        assert rows[class_id]["calls_per_request"] == pytest.approx(asked, rel=0.02)
        assert rows[class_id]["own_ms"] == pytest.approx(exclusive_ms[service], abs=0.002)
        assert rows[class_id]["network_ms_per_request"] == pytest.approx(network.get(service, 0), rel=0.02)
    assert sum(row["percent"] for row in rows.values()) == pytest.approx(100, abs=0.5)
    below = [row["class"] for row in ask("where_time_goes", **{"class": CLASS["search"]})]
    assert below == [CLASS["search"], "  " + CLASS["geo"], "  " + CLASS["rate"]]


def test_which_network_got_slower(ask, made):
    """Means between the clusters are exact, and quantiles are approximate.

    The ratio is that of the two windows.
    """
    now, earlier = recorded(100, 125, 150, 75), recorded(25, 50)
    earlier = {f"earlier_{k}": v for k, v in earlier.items()}
    rows = {
        (r["source_cluster"], r["destination_cluster"]): r for r in ask("slower_network", **now, **earlier)
    }
    assert set(rows) == {(HOME, HOME), (HOME, AWAY)}
    for (source, destination), row in rows.items():

        def times(window: dict[str, str], prefix: str = "", pair: tuple = (source, destination)) -> list[int]:
            first, last = (int(window[f"{prefix}{k}"]) for k in ("start", "end"))
            return [m.network for m in made if (m.source_cluster, m.cluster) == pair and m.network is not None
                    and first <= m.start // 1_000_000 <= last]  # fmt: skip

        there, before = times(now), times(earlier, "earlier_")
        assert row["calls_now"] == pytest.approx(len(there) * WEIGHT, abs=1)
        assert row["mean_ms"] == pytest.approx(mean(there) / 1000, abs=0.001)
        assert row["mean_change"] == pytest.approx(mean(there) / mean(before), rel=0.005)
        assert row["p50_ms"] == pytest.approx(statistics.median(there) / 1000, rel=0.05)
        assert row["p99_ms"] == pytest.approx(sorted(there)[int(0.99 * len(there))] / 1000, rel=0.1)


def test_who_calls_whom(ask, calls, made):
    """Every edge has its probability, success, network time, bytes and remote share."""
    rows = {(r["source_class"], r["class"]): r for r in ask("who_calls_whom")}
    served = Counter(c.service for c in calls)
    edges = {(m.source, m.destination) for m in made}
    assert set(rows) == {(CLASS[a], CLASS[b]) for a, b in edges}
    for source, destination in edges:
        row = rows[CLASS[source], CLASS[destination]]
        of = [m for m in made if (m.source, m.destination) == (source, destination)]
        callers = len({m.trace for m in of}) / served[source]
        assert row["probability"] == pytest.approx(callers, abs=1e-3)
        assert row["success_percent"] == pytest.approx(
            100 * (1 - sum(m.failed for m in of) / len(of)), abs=0.01
        )
        assert row["network_ms"] == pytest.approx(
            mean([m.network / 1000 for m in of if m.network is not None]), abs=0.002
        )
        assert row["remote_percent"] == pytest.approx(
            100 * sum(m.cluster == AWAY for m in of) / len(of), abs=0.1
        )
        assert row["request_bytes_mean"] == pytest.approx(mean([m.request_bytes for m in of]), abs=1)


def test_who_pays_for_egress(ask, made):
    """Only traffic between clusters counts, in GB and USD per hour of the window."""
    (row,) = ask("egress_payers", usd_per_gb=USD)
    crossed = [m.request_bytes + m.response_bytes for m in made if m.cluster == AWAY]
    whole = recorded()
    hours = (int(whole["end"]) - int(whole["start"])) / 3600
    assert (row["source_service"], row["class"], row["percent"]) == ("search", CLASS["rate"], 100)
    assert row["gb_per_hour"] == pytest.approx(sum(crossed) * WEIGHT / 1e9 / hours, rel=1e-6)
    assert row["usd_per_hour"] == pytest.approx(row["gb_per_hour"] * USD, rel=1e-9)
    assert row["bytes_per_call"] == pytest.approx(mean(crossed), abs=1)


def test_where_calls_fail_first(ask, made):
    """A failing `rate` is named, and its callers that pass the failure on are not.

    A call that was not answered is distinguished.
    """
    rows = {(r["class"], r["destination_cluster"]): r for r in ask("first_failures")}
    failed = Counter(
        (CLASS[m.destination], m.cluster) for m in made if m.failed and m.destination != "search"
    )
    assert {key: r["failures"] for key, r in rows.items()} == {
        key: pytest.approx(n * WEIGHT, abs=1) for key, n in failed.items()
    }
    assert {key[0]: r["answered_percent"] for key, r in rows.items()} == {
        CLASS["rate"]: 100,
        CLASS["profile"]: 0,
    }
    assert {r["usual_status"] for r in rows.values()} == {503}


def test_the_history_of_the_load_is_that_of_the_calls(ask, hotel_client, calls):
    """Both ways give the same count for every class.

    A wrong part is shown with its second.
    """
    rows = {(r["class"], r["cluster"]): r for r in ask("load_history")}
    counts = Counter((CLASS[c.service], c.cluster) for c in calls)
    assert {key: r["from_load"] for key, r in rows.items()} == {
        key: pytest.approx(n * WEIGHT, abs=0.01) for key, n in counts.items()
    }
    assert all(r["difference"] == 0 and r["wrong_seconds"] == 0 for r in rows.values())
    second = min(c.start for c in calls) // 1_000_000
    columns = "at", "cluster", "service", "class", "partition", "source", "sequence", "arrivals"
    part = [(second, HOME, "geo", CLASS["geo"], 9, 9, 9, 7.0)]
    with also(hotel_client, "load_parts", columns, part, "source = 9"):
        worst = ask("load_history")[0]
    assert (worst["class"], worst["difference"], worst["wrong_seconds"]) == (CLASS["geo"], 7, 1)
    assert worst["worst"].timestamp() == second


def test_the_tail_by_load(ask, calls):
    """Calls are grouped into tenths of capacity by the load of their whole service in that second.

    Quantiles are those of the calls in the group.
    """
    mine = [c for c in calls if c.service == "geo"]
    arrived = Counter(c.start // 1_000_000 for c in mine)
    by_load = defaultdict(list)
    for c in mine:
        by_load[math.floor(10 * min(arrived[c.start // 1_000_000] * WEIGHT / CAPACITY, 0.99)) / 10].append(
            c.exclusive / 1000
        )
    rows = {r["utilisation"]: r for r in ask("tail_latency", **{"class": CLASS["geo"]})}
    assert {u: r["calls"] for u, r in rows.items()} == {
        u: pytest.approx(len(times) * WEIGHT, abs=1) for u, times in by_load.items()
    }
    for u, times in by_load.items():
        assert rows[u]["p50_ms"] == pytest.approx(statistics.median(times), rel=0.02)
    unknown = ask("tail_latency", **{"class": CLASS["search"]})
    assert [r["utilisation"] for r in unknown] == [None]


def test_how_sampled_we_are(ask, calls):
    """Three of ten traces were kept, so counts are multiplied by ten thirds.

    The standard error is that of such a sample.
    """
    rows = {(r["class"], r["cluster"]): r for r in ask("sampling")}
    for (service, cluster), n in Counter((c.service, c.cluster) for c in calls).items():
        row = rows[CLASS[service], cluster]
        assert (row["spans"], row["kept_percent"]) == (n, 30)
        assert row["requests"] == pytest.approx(n / 0.3, abs=0.1)
        assert row["error_percent"] == pytest.approx(100 * math.sqrt(0.7 / n), abs=0.01)


def test_how_fresh_and_complete_it_is(ask, hotel_client, calls, made):
    """Rows and newest times are given per table, and a job's progress is its slowest partition's.

    A trace is incomplete if one of its late calls was computed alone.
    """
    rows = {row["what"]: row for row in ask("freshness")}
    assert rows["calls"]["rows"] == len(calls) and rows["edges"]["rows"] == len(made)
    assert rows["calls"]["newest"].timestamp() == pytest.approx(max(c.start for c in calls) / 1e6, abs=1e-3)
    assert rows["calls"]["incomplete"] == 0
    job = rows["job curves, spillway_calls"]
    assert job["rows"] == 2 and job["newest"].replace(microsecond=0) == PUBLISHED[1]
    columns = "started_at", "trace_id", "span_id", "service", "trace_spans"
    halved = [(calls[0].start, "halved", span, "late", spans) for span, spans in (("first", 2), ("late", 1))]
    with also(hotel_client, "calls", columns, halved, "service = 'late'"):
        incomplete = {row["what"]: row["incomplete"] for row in ask("freshness")}
    assert (incomplete["calls"], incomplete["edges"]) == (1, 0)


def test_the_slowest_traces_with_their_spans(ask, hotel_client, calls):
    """The slowest of the requests whose raw spans were kept are returned in order.

    Each has all spans of its trace.
    """
    kept = {trace for (trace,) in hotel_client.execute("SELECT DISTINCT trace_id FROM spans")}
    assert len(kept) == pytest.approx(hotel_rows.SPAN_SAMPLE * len(hotel.traces()), rel=0.3)
    entries = [c for c in calls if c.is_entry and c.trace in kept]
    slowest = sorted(entries, key=lambda c: (-c.duration, c.trace))[:40]
    rows = ask("slowest_traces", traces=40, **{"class": CLASS["frontend"]})
    assert list(dict.fromkeys(r["trace_id"] for r in rows)) == [c.trace for c in slowest]
    made_of = {t["traceID"].zfill(32): len(t["spans"]) for _, t in hotel.traces()}
    assert Counter(r["trace_id"] for r in rows) == {c.trace: made_of[c.trace] for c in slowest}
    assert all(row["at_ms"] >= 0 for row in rows)


def test_own_time_and_classes(ask, calls):
    """Rates and exclusive times per class are those that `make replay` prints."""
    times = {row["class"]: row for row in ask("own_time", **recorded(25))}
    seconds = int(recorded(25)["end"]) - int(recorded(25)["start"])
    counted = {row["class"]: row for row in ask("classes")}
    for service, class_id in CLASS.items():
        mine = [c for c in calls if c.service == service and c.load == 25]
        assert times[class_id]["rps"] == pytest.approx(len(mine) * WEIGHT / seconds, abs=0.1)
        assert times[class_id]["mean_ms"] == pytest.approx(mean([c.exclusive / 1000 for c in mine]), abs=0.01)
        assert counted[class_id]["spans"] == sum(c.service == service for c in calls)


def test_means_and_quantiles_are_of_requests_not_of_rows(ask, hotel_client):
    """Twenty rows stand for nine quick requests each, and twenty for one slow request each.

    The mean and the quantiles are those of the two hundred requests.
    """
    at = 1_000_000_000
    columns = (
        "started_at",
        "trace_id",
        "span_id",
        "service",
        "class",
        "duration_us",
        "exclusive_us",
        "adjusted_count",
    )
    mixed = [
        (at * 1_000_000 + i, f"mixed{us}", f"{i:016x}", "mixed", "mixed GET /", us, us, n)
        for us, n in ((1000, 9.0), (11_000, 1.0))
        for i in range(20)
    ]
    window = {"start": at - 1, "end": at + 1}
    with also(hotel_client, "calls", columns, mixed, "service = 'mixed'"):
        [times], [counted] = ask("own_time", **window), ask("classes", **window)
    assert (times["mean_ms"], times["p95_ms"]) == (2, 11)
    assert (counted["spans"], counted["requests"], counted["own_p50_ms"]) == (40, 200, 1)


def test_the_command_of_the_readme(hotel_client, hotel_url):
    """Every command that docs/sql/README.md shows runs and prints an answer.

    The README lists every question.
    """
    readme = (FOLDER / "README.md").read_text()
    commands = [
        line.strip() for line in readme.splitlines() if line.startswith("    python -m spillway_lab sql")
    ]
    assert len(commands) >= 3
    for command in commands:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False,
                              env=os.environ | {"SPILLWAY_CLICKHOUSE_URL": hotel_url})  # fmt: skip
        assert done.returncode == 0 and len(done.stdout.splitlines()) > 2, (command, done.stderr)
    assert all(f"`{name}`" in readme for name in questions.read_all(FOLDER))

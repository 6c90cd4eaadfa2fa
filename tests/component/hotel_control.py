"""Rows that the optimizer, the publisher, `curves` and `classify` would write for these traces."""

from datetime import UTC, datetime, timedelta

import hotel
from clickhouse_driver import Client
from hotel import HOME

CLASS = {
    "frontend": "frontend GET /hotels",
    "search": "search POST /search.Search/Nearby",
    "geo": "geo POST /geo.Geo/Nearby",
    "rate": "rate POST /rate.Rate/GetRates",
    "profile": "profile POST /profile.Profile/GetProfiles",
    "reservation": "reservation POST /reservation.Reservation/CheckAvailability",
}
CAPACITY = 1000.0
# Recent times, because findings expire after some months.
_HOUR = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
PUBLISHED = {1: _HOUR - timedelta(hours=9), 2: _HOUR - timedelta(hours=8)}
PREDICTED_MS = 1.0  # prediction for every destination and version; it is right for only a few


def store(client: Client) -> None:
    pairs = sorted({(m.source, m.source_cluster, m.destination, m.cluster) for m in hotel.made()})
    for version, at in PUBLISHED.items():
        ruleset = {"at": at, "ruleset_id": f"r{version}", "version": version}
        _insert(client, "rulesets", [ruleset | {"policy": "spillway", "outcome": "published"}])
        _insert(client, "rules", [
            ruleset | {"source_cluster": there, "source_service": source, "class": CLASS[to],
                       "destination_cluster": cluster, "weight": 5000, "predicted_compute_ms": PREDICTED_MS}
            for source, there, to, cluster in pairs
        ])  # fmt: skip
        sequence = (int(at.timestamp()) * 2) << 10 | 5
        topic = {"job": "curves", "topic": "spillway_calls", "partition": version}
        _insert(client, "positions", [topic | {"source": 0, "sequence": sequence}])
    versions = [(1.0, "prior", "cold"), (1.0, "prior", "cold"), (2.0, "retrain", "first fit")]
    _insert(client, "curves", [
        {"fitted_at": PUBLISHED[1] + timedelta(minutes=i), "service": "geo", "class": CLASS["geo"], "a_ms": a, "b_ms": 1.0,
         "norm_weight": 1.0, "samples": 100, "phase": phase, "reason": reason}
        for i, (a, phase, reason) in enumerate(versions)
    ])  # fmt: skip
    capacity = {
        "measured_at": PUBLISHED[1],
        "cluster": HOME,
        "service": "geo",
        "capacity_rps": CAPACITY,
        "source": "cpu",
    }
    _insert(client, "capacities", [capacity])
    for window, n, exclusive_sum in (
        (0, 10, 30.0),
        (0, 20, 60.0),
        (60, 20, 100.0),
    ):  # the second replaces the first
        bucket = {"window_start": PUBLISHED[1] + timedelta(seconds=window), "cluster": HOME, "service": "geo"}
        sums = {
            "utilisation_sum": 0.5 * n,
            "exclusive_sum_ms": exclusive_sum,
            "exclusive_sq_ms2": exclusive_sum**2 / n + n,
        }
        _insert(client, "buckets", [bucket | {"class": CLASS["geo"], "bucket": 5, "samples": n} | sums])
    _store_classes(client)


def _store_classes(client: Client) -> None:
    """Stores class rules and findings.

    /a/{x} takes in two templates. /c was merged and is retired. /f is not in force yet. /p and /q
    are pinned for any method, and only a PUT of /p was seen.
    """
    at = PUBLISHED[1]
    rules = [
        (at, "/a/*", "/a/{x}", "learned"),
        (at + timedelta(hours=1), "/b/*", "/a/{x}", "merged"),
        (at, "/c", "/d", "merged"),
        (at + timedelta(hours=2), "/c", "", "retired"),
        (datetime(2100, 1, 1, tzinfo=UTC), "/e", "/f", "merged"),
    ]
    _insert(client, "class_rules", [
        {"written_at": at, "effective_from": since, "service": "geo", "method": "GET", "template": template,
         "becomes": becomes, "kind": kind, "author": "classify", "reason": "alike"}
        for since, template, becomes, kind in rules
    ])  # fmt: skip
    _insert(client, "class_rules", [
        {"written_at": at, "effective_from": at, "service": "geo", "method": "", "template": template,
         "becomes": template, "kind": "pinned", "author": "ops", "reason": "billed"}
        for template in ("/p", "/q")
    ])  # fmt: skip
    finding = {"found_at": at, "service": "geo", "class": "geo GET /a/{x}", "verdict": "kept", "modes": 1}
    newer = {"found_at": at + timedelta(hours=1), "verdict": "flagged", "reason": "two modes", "modes": 2,
             "split_attribute": "response_bytes", "split_value": "900", "split_explained": 0.8}  # fmt: skip
    _insert(client, "class_findings", [finding])
    _insert(client, "class_findings", [finding | newer])
    _insert(client, "class_findings", [finding | {"class": "geo PUT /p", "verdict": "pinned"}])


def _insert(client: Client, table: str, rows: list[dict]) -> None:
    client.execute(f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES", rows)

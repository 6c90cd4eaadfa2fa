"""Questions of docs/sql about curves, classes and rulesets.

Answers are compared with figures computed from the traces and the stored decisions.
"""

import math
from collections import defaultdict
from datetime import timedelta

import pytest
from hotel import AWAY, HOME, WEIGHT, hop_us, mean
from hotel_control import CAPACITY, CLASS, PREDICTED_MS, PUBLISHED
from hotel_rows import also

pytestmark = pytest.mark.component

USD = 0.02


def test_what_a_decision_cost_and_saved(ask, calls, made):
    """Version 2 is compared with version 1.

    The answer has calls, the callers' latency, egress bytes at a price, and the prediction.
    """
    rows = {(row["source"], row["class"]): row for row in ask("decision", version=2, usd_per_gb=USD)}
    assert {name for _, name in rows} == set(CLASS.values()) - {CLASS["frontend"]}
    row = rows[HOME, CLASS["rate"]]
    of = {v: [m for m in made if m.destination == "rate" and m.version == v] for v in (1, 2)}
    felt = {v: mean([m.duration / 1000 for m in of[v]]) for v in of}
    crossed = {v: [m.request_bytes + m.response_bytes for m in of[v] if m.cluster == AWAY] for v in of}
    hops = defaultdict(list)
    for (version, service, _), times in hop_us(made, calls).items():
        hops[version, service] += times
    for service in CLASS.keys() - {"frontend"}:
        assert rows[HOME, CLASS[service]]["hop_ms"] == pytest.approx(mean(hops[2, service]) / 1000, abs=0.002)
    assert row["calls"] == pytest.approx(len(of[2]) * WEIGHT, abs=1)
    assert row["calls_before"] == pytest.approx(len(of[1]) * WEIGHT, abs=1)
    assert row["remote_percent"] == pytest.approx(100 * len(crossed[2]) / len(of[2]), abs=0.1)
    assert row["saved_ms"] == pytest.approx(felt[1] - felt[2], abs=0.002)
    assert row["predicted_hop_ms"] == PREDICTED_MS
    per_million = {v: sum(crossed[v]) / len(of[v]) / 1e3 for v in of}
    assert row["egress_gb_per_million"] == pytest.approx(per_million[2], rel=1e-3)
    hours = (max(m.start for m in of[2]) - min(m.start for m in of[2])) / 3.6e9
    usd = per_million[2] / 1e6 * len(of[2]) * WEIGHT / hours * USD
    assert row["egress_usd_per_hour"] == pytest.approx(usd, rel=1e-3)
    assert row["extra_usd_per_hour"] == pytest.approx(usd * (1 - per_million[1] / per_million[2]), rel=1e-2)
    assert rows[HOME, CLASS["geo"]]["egress_usd_per_hour"] == 0


def test_a_decision_is_compared_with_the_version_that_routed_the_same_service_before(ask, hotel_client, made):
    """Version 4 changed the routes of `search`, for which the previous version is 2.

    Version 3 changed another service's routes.
    """
    last = max(m.start for m in made)
    columns = ("started_at", "trace_id", "span_id", "source_cluster", "source_service", "destination_cluster", "class",
               "duration_us", "adjusted_count", "ruleset_version")  # fmt: skip
    edges = [(last, "later3", "3", HOME, "frontend", HOME, CLASS["profile"], 1000, 1.0, 3),
             (last, "later4", "4", HOME, "search", HOME, CLASS["rate"], 1000, 1.0, 4)]  # fmt: skip
    with also(hotel_client, "edges", columns, edges, "startsWith(trace_id, 'later')"):
        [row] = ask("decision", version=4, usd_per_gb=USD)
    before = sum(m.version == 2 and m.destination == "rate" for m in made) * WEIGHT
    assert (row["class"], row["calls"]) == (CLASS["rate"], 1)
    assert row["calls_before"] == pytest.approx(before, abs=1)


def test_whose_prediction_was_wrong(ask, calls, made):
    """A destination is listed if its newest version was off by more than the tolerance.

    The answer has the publication time of the first version since which all were wrong.
    """
    tolerance = 0.3
    observed = {key: mean(times) / 1000 for key, times in hop_us(made, calls).items()}
    wrong = {}
    for service, cluster in {(s, c) for _, s, c in observed}:
        off = [abs(observed[v, service, cluster] / PREDICTED_MS - 1) > tolerance for v in (1, 2)]
        if off[1]:
            wrong[CLASS[service], cluster] = (
                PUBLISHED[1 if off[0] else 2],
                2 if off[0] else 1,
                observed[2, service, cluster],
            )
    rows = ask("wrong_predictions", tolerance=tolerance, min_calls=20)
    assert {(r["class"], r["destination"]): (r["wrong_since"], r["wrong_rulesets"]) for r in rows} == {
        key: value[:2] for key, value in wrong.items()
    }
    for row in rows:
        assert row["observed"] == pytest.approx(wrong[row["class"], row["destination"]][2], abs=0.002)
    assert len(wrong) > 1 and ask("wrong_predictions", tolerance=1e9, min_calls=20) == []


def test_which_curves_changed(ask):
    """The first version and the one that differs are rows. The repeat of the first is not."""
    end = PUBLISHED[1] + timedelta(hours=1)
    rows = ask("curve_changes", start=PUBLISHED[1].timestamp(), end=end.timestamp())
    assert [(r["phase"], r["reason"], r["at_50"], r["change_50"]) for r in rows] == [
        ("prior", "cold", 3.0, None),
        ("retrain", "first fit", 5.0, pytest.approx(2 / 3, abs=1e-3)),
    ]


def test_whether_a_curve_agrees_with_what_was_measured(ask, hotel_client):
    """Minutes are summed up, and a minute that was computed twice counts once.

    The newest curve is compared with their mean.
    """
    start, end = PUBLISHED[1].timestamp(), PUBLISHED[1].timestamp() + 3600
    (row,) = ask("curve_points", start=start, end=end, **{"class": CLASS["geo"]})
    assert (row["from_u"], row["samples"], row["u"], row["measured_ms"]) == (0.5, 40, 0.5, 4.0)
    assert (row["curve_ms"], row["error"]) == (5.0, 0.25)
    assert row["spread_ms"] == pytest.approx(math.sqrt((20 * (9 + 1) + 20 * (25 + 1)) / 40 - 16), abs=1e-3)
    means = hotel_client.execute(
        "SELECT utilisation, exclusive_ms, exclusive_ms_sd FROM buckets FINAL ORDER BY window_start"
    )
    assert means == [(0.5, 3.0, pytest.approx(1)), (0.5, 5.0, pytest.approx(1))]


def test_which_classes_were_decided_and_why(ask):
    """The answer has the newest finding and the rules in force.

    Retired rules and future rules do not count. A rule for any method belongs to each method that
    was judged.
    """
    rows = {row["class"]: row for row in ask("class_decisions")}
    assert set(rows) == {"geo GET /a/{x}", "geo PUT /p", "geo * /q"}
    assert [rows[name]["rule"] for name in ("geo PUT /p", "geo * /q")] == ["pinned", "pinned"]
    assert [rows[name]["verdict"] for name in ("geo PUT /p", "geo * /q")] == ["pinned", ""]
    row = rows["geo GET /a/{x}"]
    assert (row["verdict"], row["reason"], row["modes"], row["rule"]) == ("flagged", "two modes", 2, "merged")
    assert row["applies_to"] == ["/a/*", "/b/*"] and row["since"] == PUBLISHED[1]
    assert row["split_by"] == "response_bytes at 900 explains 80 %"


def test_the_newest_curves_with_the_capacity_of_each_cluster(ask, hotel_client):
    """A curve's last version appears once for each cluster with a known capacity.

    The capacity is the newest one.
    """
    columns = "measured_at", "cluster", "service", "capacity_rps"
    away = [(PUBLISHED[1], AWAY, "geo", 1.0), (PUBLISHED[2], AWAY, "geo", CAPACITY / 2)]
    with also(hotel_client, "capacities", columns, away, f"cluster = '{AWAY}'"):
        rows = ask("curves")
    assert [
        (r["class"], r["cluster"], r["a_ms"], r["b_ms"], r["phase"], r["capacity_rps"]) for r in rows
    ] == [
        (CLASS["geo"], cluster, 2.0, 1.0, "retrain", rps)
        for cluster, rps in ((AWAY, CAPACITY / 2), (HOME, CAPACITY))
    ]


def test_how_wide_a_class_s_latency_is_at_a_load(ask, hotel_client):
    """The standard deviation of one call, by the newest curve.

    It is NULL for a curve that was stored without a spread, as the previous version stores it.
    """
    (row,) = ask("spread", utilisation=0.7)
    assert (row["class"], row["sd_ms"], row["relative"]) == (CLASS["geo"], None, None)
    assert row["mean_ms"] == pytest.approx(2.0 / 0.3 + 1, abs=1e-3)
    columns = "fitted_at", "service", "class", "a_ms", "b_ms", "sd_a_ms", "sd_b_ms", "phase"
    spread = [(PUBLISHED[1] + timedelta(hours=1), "geo", CLASS["geo"], 3.0, -1.0, 1.5, 2.0, "spread")]
    with also(hotel_client, "curves", columns, spread, "phase = 'spread'"):
        (row,) = ask("spread", utilisation=0.7)
    assert (row["mean_ms"], row["sd_ms"], row["phase"]) == (9.0, 7.0, "spread")
    assert row["relative"] == pytest.approx(7 / 9, abs=0.005)


def test_why_a_ruleset_sends_what_where(ask, calls, made):
    """The rules of the newest version are compared with the last two minutes' calls.

    The answer shows where the calls went and how long they took.
    """
    last = max(m.start for m in made) - 120_000_000
    went = [m for m in made if m.start > last]
    answered = {(c.trace, c.service): c for c in calls if not c.failed and c.start > last}
    rows = {(r["class"], r["destination"]): r for r in ask("why")}
    assert set(rows) == {(CLASS[m.destination], m.cluster) for m in made}
    assert {(r["ruleset"], r["weight_percent"], r["predicted_own_ms"]) for r in rows.values()} == {
        (2, 50, PREDICTED_MS)
    }
    for (class_id, cluster), row in rows.items():
        mine = [m for m in went if CLASS[m.destination] == class_id]
        there = [m for m in mine if m.cluster == cluster]
        exclusive_ms = [answered[m.trace, m.destination].exclusive / 1000
               for m in there if not m.failed and (m.trace, m.destination) in answered]  # fmt: skip
        network = [m.network / 1000 for m in there if m.network is not None]
        assert row["sent_percent"] == pytest.approx(100 * len(there) / len(mine), abs=0.1)
        assert row["observed_network_ms"] == pytest.approx(mean(network), abs=0.06)
        assert row["observed_own_ms"] == pytest.approx(mean(exclusive_ms), abs=0.06)


def test_what_a_capacity_rests_on(ask, hotel_client):
    """Each cluster has its newest row, and the largest contradiction comes first.

    Missing evidence is NULL, not zero.
    """
    names = ("measured_at", "cluster", "service", "capacity_rps", "pods", "evidence", "cpu_rps", "cpu_se",
             "limit_rps", "limit_se", "disagreement", "changed_at")  # fmt: skip
    older = (PUBLISHED[1], AWAY, "rate", 493.0, 2, "cpu", 493.0, 10.0, 0.0, 0.0, 1.0, 0)
    newer = (PUBLISHED[2], AWAY, "rate", 95.0, 2, "queue", 493.0, 9.86, 95.0, 1.9, 5.19, PUBLISHED[1])
    with also(hotel_client, "capacities", names, [older, newer], "service = 'rate'"):
        row, before = ask("capacity_evidence")
    assert (row["service"], row["capacity_rps"], row["per_pod_rps"], row["evidence"]) == (
        "rate",
        95,
        47.5,
        "queue",
    )
    assert (row["cpu_rps"], row["cpu_error"], row["limit_rps"], row["limit_error"]) == (493, 0.02, 95, 0.02)
    assert (row["latency_rps"], row["latency_error"], row["disagreement"]) == (None, None, 5.19)
    assert (before["service"], before["pods"], before["per_pod_rps"]) == ("geo", None, None)
    assert (row["changed_at"], before["changed_at"]) == (PUBLISHED[1], None)


# The newest version of the test below: (version, policy, {cluster of `rate`: weight}).
_OTHER_WEIGHTS = (4, "spillway", {HOME: 2500, AWAY: 7500})
_ANOTHER_POLICY = (4, "local", {HOME: 10_000})


@pytest.mark.parametrize(("version", "policy", "weights"), [_OTHER_WEIGHTS, _ANOTHER_POLICY])
def test_a_prediction_is_held_against_the_calls_of_its_own_weights_and_policy(
    ask, hotel_client, made, version, policy, weights
):
    """Version 4 has other weights than version 2, or another policy, and version 5 confirms it.

    Of the calls of the last two minutes, version 2 routed thousands. Version 4 routed four, which
    took 900 ms and 7 ms more on the network.
    """
    [source] = {(m.source_cluster, m.source) for m in made if m.destination == "rate"}
    at, last = PUBLISHED[2] + timedelta(hours=1), max(m.start for m in made)
    rulesets = [(at, f"r{v}", v, policy, "published") for v in (version, version + 1)]
    rules = [(at, f"r{v}", v, *source, CLASS["rate"], cluster, weight, 950.0, 5.0)
             for v in (version, version + 1) for cluster, weight in weights.items()]  # fmt: skip
    went = sorted(cluster for cluster, weight in weights.items() for _ in range(4 * weight // 10_000))
    edges = [(last + i, f"later{i}", f"{i:016x}", *source, cluster, CLASS["rate"], 907_000, 7000, 1.0, version)
             for i, cluster in enumerate(went)]  # fmt: skip
    served = [(last + i, f"later{i}", f"{i:016x}", cluster, "rate", CLASS["rate"], 900_000, 900_000, 1.0)
              for i, cluster in enumerate(went)]  # fmt: skip
    caller = "source_cluster", "source_service"
    with (
        also(hotel_client, "rulesets", ("at", "ruleset_id", "version", "policy", "outcome"), rulesets,
             f"version >= {version}"),
        also(hotel_client, "rules", ("at", "ruleset_id", "version", *caller, "class", "destination_cluster", "weight",
                                     "predicted_compute_ms", "predicted_network_ms"), rules, f"version >= {version}"),
        also(hotel_client, "edges", ("started_at", "trace_id", "span_id", *caller, "destination_cluster", "class",
                                     "duration_us", "network_us", "adjusted_count", "ruleset_version"), edges,
             "startsWith(trace_id, 'later')"),
        also(hotel_client, "calls", ("started_at", "trace_id", "span_id", "cluster", "service", "class", "duration_us",
                                     "exclusive_us", "adjusted_count"), served, "startsWith(trace_id, 'later')"),
    ):  # fmt: skip
        rows = {row["destination"]: row for row in ask("why") if row["class"] == CLASS["rate"]}
        if policy == "local":
            assert {row["class"] for row in ask("why")} == {CLASS["rate"]}
    assert set(rows) == set(weights)
    for cluster, row in rows.items():
        assert (row["observed_own_ms"], row["observed_network_ms"]) == (900, 7)
        assert row["sent_percent"] == row["weight_percent"] == weights[cluster] / 100
        assert (row["ruleset"], row["since_version"]) == (version + 1, version)
        assert (row["predicted_own_ms"], row["predicted_network_ms"]) == (950, 5)


def test_what_the_optimizer_decided(ask, hotel_client):
    """There is one row per policy, outcome and trigger.

    It has means of the known values, the worst gap and loss, and the newest reason. A refusal has
    no objective, and binding constraints are ranked.
    """
    names = ("at", "policy", "outcome", "trigger", "reason", "duration_ms", "relative_gap", "objective_usd_per_hour",
             "compute_usd_per_hour", "network_usd_per_hour", "egress_usd_per_hour", "merging_loss", "rounding_loss",
             "binding", "notes")  # fmt: skip
    nan, at = math.nan, PUBLISHED[1]
    rows = [
        (at, "hotel", "proposed", "load", "first", 10.0, 1e-4, 4.0, 2.0, 1.0, 1.0, 0.0, 1e-5, ["budget"], []),
        (at + timedelta(seconds=1), "hotel", "proposed", "load", "second", 30.0, 2e-4, 8.0, 4.0, 2.0, 2.0, 1e-5, 2e-5,
         ["budget", "ceiling"], ["overload"]),
        (at, "hotel", "refused", "period", "board is old", nan, nan, nan, nan, nan, nan, nan, nan, [], []),
    ]  # fmt: skip
    with also(hotel_client, "solves", names, rows, "policy = 'hotel'"):
        start, end = (f"{(at + timedelta(seconds=s)).timestamp():.0f}" for s in (-60, 60))
        first, last = ask("solves", start=start, end=end)
    assert (first["outcome"], first["trigger"], first["solves"], first["last_reason"]) == (
        "proposed", "load", 2, "second",
    )  # fmt: skip
    assert (first["ms_max"], first["gap_max"], first["usd_per_hour"]) == (30, 2e-4, 6)
    assert [first[f"{term}_usd_per_hour"] for term in ("compute", "network", "egress")] == [3, 1.5, 1.5]
    assert first["lost_max"] == pytest.approx(3e-5)
    assert first["binding"] == ["budget", "ceiling"] and first["notes"] == ["overload"]
    assert (last["outcome"], last["last_reason"], last["gap_max"]) == ("refused", "board is old", None)
    assert last["usd_per_hour"] is None and last["binding"] == []


def test_whether_the_solver_was_right(ask, hotel_client):
    """An audit counts as wrong or better by its verdict, and the worst one is named.

    Solves are not audits. A stated gap that is unknown does not count.
    """
    names = ("at", "application", "policy", "outcome", "trigger", "reason", "relative_gap", "duration_ms",
             "audited_gap", "audit_difference")  # fmt: skip
    nan, at = math.nan, PUBLISHED[1]
    rows = [
        (at, "shop", "hotel", "audited", "audit", "wrong: costs less", 0.001, 4000.0, 0.002, 0.03),
        (at + timedelta(seconds=1), "shop", "hotel", "audited", "audit", "better: too", 0.003, 9000.0, 0.04, 0.01),
        (at + timedelta(seconds=2), "shop", "hotel", "audited", "audit", "confirmed: so", 0.002, 100.0, nan, 0.0),
        (at + timedelta(seconds=3), "shop", "hotel", "proposed", "period", "", 0.5, 10.0, nan, nan),
        (at, "blog", "hotel", "audited", "audit", "unfinished: late", 0.2, 10_000.0, 0.3, 0.0),
    ]  # fmt: skip
    with also(hotel_client, "solves", names, rows, "policy = 'hotel'"):
        start, end = (f"{(at + timedelta(seconds=s)).timestamp():.0f}" for s in (-60, 60))
        first, last = ask("audits", start=start, end=end)
        solves = ask("solves", start=start, end=end)
    assert (first["application"], first["audits"], first["wrong"], first["better"]) == ("shop", 3, 1, 1)
    assert (first["difference_max"], first["stated_gap_max"]) == (0.03, 0.04)
    assert (first["proven_gap_p50"], first["proven_gap_max"], first["seconds_max"]) == (0.002, 0.003, 9)
    assert first["worst_reason"] == "wrong: costs less"
    assert (last["application"], last["wrong"], last["difference_max"]) == ("blog", 0, 0)
    assert [(row["outcome"], row["solves"]) for row in solves] == [("proposed", 1)]


def test_what_proposals_would_gain(ask, hotel_client):
    """Means are over the solves that have both sides, with latency weighted by requests.

    The largest gain comes first. A loss is a negative gain.
    """
    names = ("at", "application", "policy", "outcome", "demand_rps", "mean_latency_ms", "egress_usd_per_hour",
             "objective_usd_per_hour", "now_mean_latency_ms", "now_egress_usd_per_hour",
             "now_objective_usd_per_hour")  # fmt: skip
    nan, at = math.nan, PUBLISHED[1]
    rows = [
        (at, "shop", "hotel", "proposed", 300.0, 20.0, 1.0, 4.0, 40.0, 0.0, 8.0),
        (at + timedelta(seconds=1), "shop", "hotel", "renewed", 100.0, 40.0, 2.0, 6.0, 80.0, 1.0, 12.0),
        (at, "shop", "hotel", "refused", 0.0, nan, nan, nan, nan, nan, nan),
        (at, "shop", "hotel", "unchanged", 100.0, 5.0, 5.0, 5.0, nan, nan, nan),
        (at, "blog", "hotel", "proposed", 10.0, 8.0, 0.5, 2.5, 7.0, 0.5, 2.0),
    ]
    with also(hotel_client, "solves", names, rows, "policy = 'hotel'"):
        start, end = (f"{(at + timedelta(seconds=s)).timestamp():.0f}" for s in (-60, 60))
        first, last = ask("gains", start=start, end=end)
    assert (first["application"], first["policy"], first["solves"], first["last_outcome"]) == (
        "shop", "hotel", 2, "renewed",
    )  # fmt: skip
    assert (first["rps"], first["now_ms"], first["proposed_ms"], first["saved_ms"]) == (200, 50, 25, 25)
    assert (first["now_egress_usd"], first["proposed_egress_usd"]) == (0.5, 1.5)
    assert (first["now_usd"], first["proposed_usd"], first["saved_usd"], first["saved_percent"]) == (
        10,
        5,
        5,
        50,
    )
    assert (last["application"], last["saved_usd"], last["saved_percent"]) == ("blog", -0.5, -25)


@pytest.mark.parametrize(("ruleset", "named"), [("hotel-a", "hotel-a"), (4, "hotel-b")])
def test_what_became_of_a_ruleset(ask, hotel_client, ruleset, named):
    """Its states are in order, found by its id or by its version, with the time since the first.

    A state that was written again counts once. Version 0 belongs to many, and finds none.
    """
    at = PUBLISHED[1]
    states = [
        ("proposed", 0, 0),
        ("published", 4, 9),
        ("checked", 0, 9),
        ("acknowledged", 4, 250),
        ("checked", 0, 9),
    ]
    rows = [
        (at + timedelta(milliseconds=ms), named, version, state, "papa", f"{state} so")
        for state, version, ms in states
    ]
    rows.append((at, "hotel-other", 0, "refused", "operator", "expired"))
    names = ("at", "ruleset_id", "version", "state", "origin", "reason")
    with also(hotel_client, "transitions", names, rows, "startsWith(ruleset_id, 'hotel')"):
        found = ask("transitions", ruleset=ruleset)
        assert ask("transitions", ruleset=0) == []
    assert [(row["state"], row["ms"], row["version"]) for row in found] == [
        ("proposed", 0, 0), ("checked", 9, 0), ("published", 9, 4), ("acknowledged", 250, 4),
    ]  # fmt: skip
    assert {(row["ruleset_id"], row["origin"]) for row in found} == {(named, "papa")}
    assert found[1]["reason"] == "checked so"


def test_who_did_what_to_the_guardrails_and_what_came_of_it(ask, hotel_client):
    """Each outcome of an act is a row, and a proposal that it led to has its last state."""
    at = PUBLISHED[1]
    later = [at + timedelta(seconds=s) for s in range(4)]
    who = ("ada", "os", "operator")
    rows = [
        (later[0], "hotel-kill", *who, "kill", "", "false", "true", "fire", later[3], "", "accepted", ""),
        (later[0], "hotel-kill", *who, "kill", "", "false", "true", "fire", later[3], "", "accepted", ""),
        (later[1], "hotel-kill", *who, "kill", "", "", "", "fire", later[3], "hotel-k", "proposed", ""),
        (later[3], "hotel-kill", *who, "kill", "", "true", "false", "fire", later[3], "", "expired", ""),
    ]
    columns = ("at", "id", "actor", "issuer", "via", "act", "target", "before", "after", "reason", "expires",
               "proposal", "outcome", "detail")  # fmt: skip
    states = [
        (later[1], "hotel-k", 0, "proposed", "operator", ""),
        (later[2], "hotel-k", 9, "published", "operator", ""),
    ]
    names = ("at", "ruleset_id", "version", "state", "origin", "reason")
    with (
        also(hotel_client, "operator_acts", columns, rows, "startsWith(id, 'hotel')"),
        also(hotel_client, "transitions", names, states, "startsWith(ruleset_id, 'hotel')"),
    ):
        found = ask("acts", start=later[0].timestamp(), end=later[3].timestamp())
    assert [(row["outcome"], row["became"], row["version"]) for row in found] == [
        ("accepted", "", 0), ("proposed", "published", 9), ("expired", "", 0),
    ]  # fmt: skip
    assert {(row["id"], row["actor"], row["reason"]) for row in found} == {("hotel-kill", "ada", "fire")}

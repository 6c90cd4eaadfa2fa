"""GET /metrics of the publisher: counters, states of servers, and the rulesets in force.

REFERENCE.md has the table of metrics.
"""

from collections.abc import Callable, Iterator, Mapping

from spillway.v1.ruleset_pb2 import Ruleset
from spillway_runtime.metrics import Exposition, Family, Sample

from spillway_publisher.process.telemetry import Telemetry
from spillway_publisher.rules.weights import TOTAL

_P = "spillway_publisher_"

FAMILIES = (
    Family(_P + "ready", "1 while the publisher can publish, as `/readyz` says. Several publishers can at the same time."),
    Family(_P + "server_up", "1 while the server answers; `clickhouse` and `redis` do not hold up publishing.", ("server",)),
    Family(_P + "ruleset_version", "Version that the cluster's key in NATS holds.", ("cluster",)),
    Family(_P + "ruleset_expiry_timestamp_seconds", "Unix time at which that ruleset expires.", ("cluster",)),
    Family(_P + "ruleset_local_share_ratio", "Mean share that rules keep in the cluster, all rules alike.", ("cluster",)),
    Family(_P + "proposals_total", "Proposals by outcome: `published`, `refused`, `duplicate`, `conflict`.", ("outcome",)),
    Family(_P + "refused_proposals_total", "Refused proposals, by the check that refused them.", ("by",)),
    Family(_P + "acts_total", "Operators' acts by outcome: `accepted`, `refused`.", ("outcome",)),
    Family(_P + "guardrails_wrong_total", "Changes of the guardrail file that were refused; the last good one stays."),
    Family(_P + "keys_taken_total", "Changes of the key files that are in use."),
    Family(_P + "keys_wrong_total", "Changes of the key files that were refused; the last good keys stay."),
    Family(_P + "acknowledgements_total", "Acknowledgements stored in ClickHouse: `ack`, `nack`.", ("cluster", "outcome")),
    Family(_P + "relay_heard_timestamp_seconds", "Unix time of the relay's last heartbeat.", ("cluster", "relay")),
    Family(_P + "heartbeats_total", "Heartbeats of relays that count towards a placement."),
    Family(_P + "late_heartbeats_total", "Heartbeats that had expired when they arrived."),
    Family(_P + "malformed_total", "Messages that are malformed, by kind and reason.", ("reason",)),
    Family(_P + "history_rows_waiting", "Rows that wait for ClickHouse; bound: SPILLWAY_PUBLISHER_HISTORY_ROWS."),
    Family(_P + "history_rows_total", "Rows stored in ClickHouse."),
    Family(_P + "history_dropped_rows_total", "Rows dropped because too many waited."),
    Family(_P + "history_recovered_total", "Versions recorded from the bucket after a restart."),
    Family(_P + "counted_total", "All other counters, under their names in `/readyz`.", ("name",)),
)  # fmt: skip

# Counter name -> metric name. When a key ends in a dot, the rest of the counter's name is the
# label.
_COUNTERS = {
    "proposals.": "proposals_total",
    "refused.": "refused_proposals_total",
    "acts.": "acts_total",
    "malformed.": "malformed_total",
    "guardrails.wrong": "guardrails_wrong_total",
    "keys.taken": "keys_taken_total",
    "keys.wrong": "keys_wrong_total",
    "heartbeats": "heartbeats_total",
    "heartbeats.late": "late_heartbeats_total",
    "history.rows": "history_rows_total",
    "history.dropped_rows": "history_dropped_rows_total",
    "history.recovered": "history_recovered_total",
}


def exposition(
    telemetry: Telemetry, in_force: Callable[[], Mapping[str, Ruleset]], waiting: Callable[[], int]
) -> Exposition:
    """Returns the exposition of the publisher's metrics.

    `in_force`: returns the rulesets by cluster. `waiting`: returns how many rows wait for
    ClickHouse.
    """

    def read() -> Iterator[Sample]:
        yield Sample(_P + "ready", not telemetry.servers.problems())
        for server, up in telemetry.servers.up().items():
            yield Sample(_P + "server_up", up, (server,))
        for cluster, ruleset in in_force().items():
            yield Sample(_P + "ruleset_version", ruleset.version, (cluster,))
            yield Sample(_P + "ruleset_local_share_ratio", _local_share(ruleset), (cluster,))
            expiry = ruleset.expires_at.ToMilliseconds() / 1000
            yield Sample(_P + "ruleset_expiry_timestamp_seconds", expiry, (cluster,))
        for cluster, relays in dict(telemetry.relays).items():
            for relay, latest_at in relays.items():
                yield Sample(_P + "relay_heard_timestamp_seconds", latest_at, (cluster, relay))
        yield Sample(_P + "history_rows_waiting", waiting())
        for name, value in dict(telemetry.counters).items():
            if name != "acks":  # it is the sum of the counters by cluster
                yield _counted(name, value)

    return Exposition(FAMILIES, read)


def _local_share(ruleset: Ruleset) -> float:
    """Returns the mean share of 0 to 1 that rules keep in the cluster.

    1 without rules, because relays then serve local-first.
    """
    local = [
        d.weight for rule in ruleset.rules for d in rule.destinations if d.cluster == rule.source_cluster
    ]
    return sum(local) / (TOTAL * len(ruleset.rules)) if ruleset.rules else 1.0


def _counted(name: str, value: int) -> Sample:
    if name in _COUNTERS:
        return Sample(_P + _COUNTERS[name], value)
    kind, _, rest = name.partition(".")
    if kind == "acks":
        outcome, _, cluster = rest.partition(".")
        return Sample(_P + "acknowledgements_total", value, (cluster, outcome))
    if f"{kind}." in _COUNTERS:
        return Sample(_P + _COUNTERS[f"{kind}."], value, (rest,))
    return Sample(_P + "counted_total", value, (name,))

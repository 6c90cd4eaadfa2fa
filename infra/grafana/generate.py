"""Writes the dashboards beside this file. `--check` exits with 1 when they are stale.

Panels are 12 of 24 columns wide.
"""

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_OF_CLUSTER = 'cluster=~"$cluster"'
Panel = tuple[str, str, dict[str, str]]  # title, unit of Grafana, query by legend
_STACKED = {"Audits of solves"}  # titles of panels whose series add up

OVERVIEW: list[Panel] = [
    ("Mean latency of entry requests", "s", {
        "observed": "max(spillway_optimizer_observed_mean_latency_seconds and on (job, instance) "
                    'spillway_optimizer_leader{role="optimizer"} == 1)',
        "predicted": "max(spillway_optimizer_predicted_mean_latency_seconds and on (job, instance) "
                     'spillway_optimizer_leader{role="optimizer"} == 1)',
    }),
    ("Prediction error", "percentunit", {
        "observed over predicted, less 1": "max(spillway_optimizer_prediction_error_ratio and on (job, instance) "
                                           'spillway_optimizer_leader{role="optimizer"} == 1)',
    }),
    ("Egress", "currencyUSD", {
        "USD per hour": "max(spillway_optimizer_egress_usd_per_hour and on (job, instance) "
                        'spillway_optimizer_leader{role="optimizer"} == 1)',
        "budget": "max(spillway_optimizer_egress_budget_usd_per_hour)",
    }),
    ("Entry requests", "reqps", {"demand": "max(spillway_optimizer_demand_requests_per_second)"}),
    ("Version in force", "none", {"{{cluster}}": "max by (cluster) (spillway_publisher_ruleset_version)"}),
    ("Time until the ruleset expires", "s", {
        "{{cluster}}": "max by (cluster) (spillway_publisher_ruleset_expiry_timestamp_seconds) - time()",
    }),
    ("Solves", "ops", {"{{outcome}}": "sum by (outcome) (rate(spillway_optimizer_solves_total[5m]))"}),
    ("Proposals", "ops", {"{{outcome}}": "sum by (outcome) (rate(spillway_publisher_proposals_total[5m]))"}),
    ("Steps of PAPA", "ops", {"{{outcome}}": "sum by (outcome) (rate(spillway_optimizer_papa_steps_total[15m]))"}),
    ("Audits of solves", "ops", {
        "{{outcome}}": "sum by (outcome) (rate(spillway_optimizer_audits_total[1h]))",
    }),
    ("Last audit", "percentunit", {
        "the better routing costs less by": "max(spillway_optimizer_audit_difference_ratio and on (job, instance) "
                                            'spillway_optimizer_leader{role="optimizer"} == 1)',
        "proven gap": "max(spillway_optimizer_audit_relative_gap and on (job, instance) "
                      'spillway_optimizer_leader{role="optimizer"} == 1)',
    }),
    ("Leaders", "none", {"{{role}}": "sum by (role) (spillway_optimizer_leader)"}),
]  # fmt: skip

PIPELINE: list[Panel] = [
    ("Spans accepted by collectors", "ops", {
        "{{cluster}}": f"sum by (cluster) (rate(otelcol_receiver_accepted_spans{{{_OF_CLUSTER}}}[5m]))",
    }),
    ("Collector queue", "percentunit", {
        "{{cluster}} {{data_type}}": "max by (cluster, data_type) "
        f"(otelcol_exporter_queue_size{{{_OF_CLUSTER}}} / otelcol_exporter_queue_capacity{{{_OF_CLUSTER}}})",
    }),
    ("Oldest message on its way to Kafka", "s", {
        "{{cluster}} {{topic}}": "max by (cluster, topic) "
        f"(otelcol_exporter_kafka_partition_oldest_message_age{{{_OF_CLUSTER}}})",
    }),
    ("Lag", "s", {"{{job}} {{topic}}": "max by (job, topic) (spillway_streams_consumer_lag_seconds)"}),
    ("Lag by partition", "none", {
        "{{topic}} {{partition}}": "sum by (topic, partition) (spillway_streams_consumer_lag_records)",
    }),
    ("Age of the newest record taken", "s", {
        "{{job}} {{topic}}": "time() - max by (job, topic) (spillway_streams_newest_record_timestamp_seconds)",
    }),
    ("Age of the optimizer's input", "s", {
        "{{cluster}} {{board}}": "time() - max by (cluster, board) (spillway_optimizer_input_timestamp_seconds)",
    }),
    ("Rows stored", "cps", {"{{table}}": "sum by (table) (rate(spillway_streams_stored_rows_total[5m]))"}),
    ("Dead letters", "none", {
        "{{job}} {{reason}}": "sum by (job, reason) (increase(spillway_streams_dead_letters_total[10m]))",
    }),
    ("Rows waiting for ClickHouse", "none", {"publisher": "sum(spillway_publisher_history_rows_waiting)"}),
]  # fmt: skip

CLUSTER: list[Panel] = [
    ("Relays", "none", {
        "ready": f"sum(spillway_relay_ready{{{_OF_CLUSTER}}})",
        "with NATS": f"sum(spillway_relay_nats_connected{{{_OF_CLUSTER}}})",
    }),
    ("Envoys that hold routes", "none", {
        "{{service}}": f"sum by (service) (spillway_relay_envoys_placed{{{_OF_CLUSTER}}})",
    }),
    ("Envoys that report their calls in flight", "none", {
        "{{service}}": f"sum by (service) (spillway_relay_envoys_reporting{{{_OF_CLUSTER}}})",
    }),
    ("Version served", "none", {"{{instance}}": f"spillway_relay_served_ruleset_version{{{_OF_CLUSTER}}}"}),
    ("Push to acceptance, 99 %", "s", {
        "all": "histogram_quantile(0.99, sum by (le) "
               f"(rate(spillway_relay_push_to_ack_seconds_bucket{{{_OF_CLUSTER}}}[5m])))",
    }),
    ("Answers of Envoys", "ops", {
        "ACK": f"sum(rate(spillway_relay_answers_accepted_total{{{_OF_CLUSTER}}}[5m]))",
        "NACK": f"sum(rate(spillway_relay_answers_refused_total{{{_OF_CLUSTER}}}[5m]))",
    }),
    ("Local and remote share of the rules", "percentunit", {
        "{{cluster}} local": 'max by (cluster) (spillway_publisher_ruleset_local_share_ratio{cluster=~"$cluster"})',
        "{{cluster}} remote": '1 - max by (cluster) (spillway_publisher_ruleset_local_share_ratio{cluster=~"$cluster"})',
    }),
    ("Envoys turned away", "ops", {
        "identity": f"sum(rate(spillway_relay_streams_refused_identity_total{{{_OF_CLUSTER}}}[5m]))",
        "TLS": f"sum(rate(spillway_relay_tls_handshakes_refused_total{{{_OF_CLUSTER}}}[5m]))",
    }),
    ("Time until the relay's certificate ends", "s", {
        "{{instance}}": f"spillway_relay_certificate_expiry_timestamp_seconds{{{_OF_CLUSTER}}} - time()",
    }),
]  # fmt: skip

DASHBOARDS = {
    "overview": ("Spillway: Overview", OVERVIEW),
    "pipeline": ("Spillway: Pipeline", PIPELINE),
    "cluster": ("Spillway: Cluster", CLUSTER),
}


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    title, unit, queries = panel
    defaults: dict[str, Any] = {"unit": unit}
    if title in _STACKED:
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": _SOURCE, "expr": expr, "legendFormat": legend}
            for i, (legend, expr) in enumerate(queries.items())
        ],
    }


def _variables(panels: list[Panel]) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    ]
    if any("$cluster" in expr for _, _, queries in panels for expr in queries.values()):
        query = "label_values(spillway_relay_ready, cluster)"
        variables.append(
            {"name": "cluster", "label": "Cluster", "type": "query", "datasource": _SOURCE, "query": query,
             "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
             "current": {"text": "All", "value": "$__all"}}
        )  # fmt: skip
    return variables


def dashboard(name: str) -> str:
    """Returns the JSON of infra/grafana/<name>.json."""
    title, panels = DASHBOARDS[name]
    model = {
        "uid": f"spillway-{name}",
        "title": title,
        "tags": ["spillway"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables(panels)},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }
    return json.dumps(model, indent=1) + "\n"


def main(arguments: list[str]) -> int:
    stale = []
    for name in DASHBOARDS:
        file = HERE / f"{name}.json"
        if arguments != ["--check"]:
            file.write_text(dashboard(name))
        elif not file.exists() or file.read_text() != dashboard(name):
            stale.append(file.name)
    if stale:
        print(f"stale: {', '.join(stale)}; run 'python infra/grafana/generate.py'", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

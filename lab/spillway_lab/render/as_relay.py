"""What every Envoy cluster of the relay has, for Envoy clusters that the lab makes itself. Pure.

The values are those of rule-publisher/relay/internal/envoy. A unit test compares them with the
golden file of the relay (contracts/golden/6_envoy_routes.json).
"""

from typing import Any

from spillway_contracts import names

_NO_ANSWER = {
    "name": names.HTTP_HEADER_NO_ANSWER,
    "string_match": {"safe_regex": {"regex": "UF|UH|NR|NC"}},
}
_HTTP = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
SETTINGS: dict[str, Any] = {
    "circuit_breakers": {
        "thresholds": [
            {
                "max_connections": 100_000,
                "max_pending_requests": 100_000,
                "max_requests": 100_000,
                "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 100},
            }
        ]
    },
    "common_lb_config": {
        "healthy_panic_threshold": {"value": 1},
        "ignore_new_hosts_until_first_hc": True,
        "update_merge_window": "0s",
    },
    "ignore_health_on_host_removal": True,
    "outlier_detection": {
        "base_ejection_time": "2s",
        "consecutive_5xx": 3,
        "enforcing_consecutive_5xx": 100,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_failure_percentage": 100,
        "enforcing_success_rate": 0,
        "failure_percentage_minimum_hosts": 1,
        "failure_percentage_request_volume": 10,
        "failure_percentage_threshold": 50,
        "interval": "1s",
        "max_ejection_percent": 100,
        "max_ejection_time": "10s",
        "successful_active_health_check_uneject_host": False,
    },
    "typed_extension_protocol_options": {
        _HTTP: {
            "@type": f"type.googleapis.com/{_HTTP}",
            "outlier_detection": {
                "error_matcher": {"http_response_headers_match": {"headers": [_NO_ANSWER]}}
            },
            "use_downstream_protocol_config": {
                "http2_protocol_options": {"connection_keepalive": {"interval": "10s", "timeout": "5s"}},
                "http_protocol_options": {},
            },
        }
    },
    "upstream_connection_options": {
        "tcp_keepalive": {"keepalive_interval": 5, "keepalive_probes": 3, "keepalive_time": 10}
    },
}


def connect_timeout(farthest_rtt_ms: float) -> str:
    """Returns how long a connection may take to a service whose clusters are at most this far."""
    return f"{min(500 + 2 * farthest_rtt_ms, 5000) / 1000:.3f}s"


def check(service: str) -> dict:
    """Returns the health check of a service's endpoints in other clusters (docs/adr/0009)."""
    return {
        "timeout": "2s",
        "interval": "10s",
        "unhealthy_edge_interval": "1s",
        "healthy_edge_interval": "1s",
        "no_traffic_interval": "30s",
        "initial_jitter": "0.500s",
        "interval_jitter_percent": 30,
        "unhealthy_threshold": 3,
        "healthy_threshold": 2,
        "reuse_connection": False,
        "http_health_check": {
            "host": service,
            "path": names.XDS_ALIVE_PATH,
            "method": "GET",
            "expected_statuses": [{"start": "200", "end": "600"}],
        },
    }

"""Values that spillway-global refuses: a wrong or missing one is named in the message."""

import copy

import charts
import pytest
from global_chart import CHART, LEAST

pytestmark = [pytest.mark.component, pytest.mark.usefixtures("chart_tools")]


@pytest.mark.parametrize(
    "kafka",
    [
        {"sasl": "OAUTHBEARER"},
        {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "http://login.example/token"}},
        {"sasl": "OAUTHBEARER", "oauth": {"tokenUrl": "https://me:secret@login.example/token"}},
        {"oauth": {"tokenUrl": "https://login.example/token"}},
    ],
)
def test_a_token_endpoint_goes_with_oauthbearer_over_tls(kafka: dict):
    done = charts.helm("template", "spillway", CHART, values=LEAST | {"kafka": LEAST["kafka"] | kafka})
    assert done.returncode != 0 and "/kafka/oauth/tokenUrl" in done.stderr


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("image.registry", ""),
        ("bundled.nats.external.type", "Loadbalancer"),
        ("bundled.nats.external.loadBalancerSourceRanges", ["203.0.113.0/24"]),
        ("bundled.nats.external.nodePort", 30422),
        ("kafka.brokers", "kafka"),
        ("kafka.brokers", "kafka://kafka:9093"),
        ("kafka.sasl", "GSSAPI"),
        ("kafka.clusters", ["west.1"]),
        ("kafka.partitions", 0),
        ("kafka.topicConfig", {"otlp_spans": {"retention.ms": 1.5}}),
        ("kafka.topicConfig", {"otlp_spans": 3600000}),
        ("clickhouse.variant", "replicated"),
        ("streams.curves.replica", 2),
        ("streams.exclusive.settings", {"SPILLWAY-WINDOW": "2"}),
        ("streams.autoscaling.enabled", True),
        ("streams.mode", "one"),
        ("streams.all.secret", "spillway-streams"),
        ("optimizer.resources", {"cpu": "1"}),
        ("networkPolicy.kafka.cidrs", ["kafka.example"]),
        ("trust.kafak", "system"),
        ("trust.kafka", "/etc/ssl/kafka.crt"),
        ("guardrails", "maximum_shift: 1"),
        ("papas", {}),
    ],
)
def test_a_wrong_value_is_refused_by_name(path: str, value: object):
    """The schema's message names the value, or the group of an unknown value."""
    values = copy.deepcopy(LEAST)
    *groups, last = path.split(".")
    place = values
    for group in groups:
        place = place.setdefault(group, {})
    place[last] = value
    done = charts.helm("template", "spillway", CHART, values=values)
    assert done.returncode != 0
    assert groups == [] or f"'/{'/'.join(groups)}" in done.stderr
    assert last in done.stderr or path in (
        "clickhouse.variant",
        "streams.autoscaling.enabled",
        "optimizer.resources",
    )


def test_a_misspelt_topic_is_refused_by_name():
    """The message lists the topics that exist."""
    values = LEAST | {"kafka": LEAST["kafka"] | {"topicConfig": {"otlp_span": {"retention.ms": 1}}}}
    done = charts.helm("template", "spillway", CHART, values=values)
    assert done.returncode != 0
    assert (
        "kafka.topicConfig: otlp_span: unknown topic; topics: otlp_metrics, otlp_metrics.{cluster}"
        in done.stderr
    )


def test_nothing_is_rendered_without_what_has_no_default():
    """The message asks for the registry, the brokers and the clusters by name."""
    done = charts.helm("template", "spillway", CHART)
    assert done.returncode != 0
    assert "/image/registry" in done.stderr
    assert "/kafka/brokers" in done.stderr
    assert "/kafka/clusters" in done.stderr


def test_a_process_with_all_jobs_is_not_scaled():
    """KEDA would scale five Deployments that do not exist. The message names the value."""
    values = LEAST | {
        "streams": {"mode": "all", "autoscaling": {"enabled": True, "prometheus": "http://p:9090"}}
    }
    done = charts.helm("template", "spillway", CHART, values=values)
    assert done.returncode != 0 and "/streams/autoscaling/enabled" in done.stderr

"""config.yaml against the contracts and the builder's manifest, as data: nothing is started."""

import re
from pathlib import Path

import yaml
from spillway_contracts import names

BOX = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((BOX / "config.yaml").read_text())
MANIFEST = yaml.safe_load((BOX / "builder-config.yaml").read_text())
EXPORTER = CONFIG["exporters"]["kafka"]
QUEUE = EXPORTER["sending_queue"]


def test_topics_are_those_of_the_contracts():
    """Spans and metrics go to the topics that streams read, as OTLP protobuf."""
    assert EXPORTER["traces"] == {"topic": names.KAFKA_TOPIC_OTLP_SPANS, "encoding": "otlp_proto"}
    assert EXPORTER["metrics"] == {"topic": names.KAFKA_TOPIC_OTLP_METRICS, "encoding": "otlp_proto"}


def test_cluster_attribute_is_that_of_the_contracts_and_is_only_inserted():
    """The cluster's name goes under the contracts' key and never overwrites what a proxy says of itself."""
    assert CONFIG["processors"]["resource"]["attributes"] == [
        {"key": names.SPAN_ATTRIBUTE_CLUSTER, "value": "${env:SPILLWAY_CLUSTER}", "action": "insert"}
    ]


def test_what_comes_from_the_environment_has_no_default():
    """Every placeholder is a plain ${env:NAME}: a default would be an identity that nobody chose."""
    text = (BOX / "config.yaml").read_text() + (BOX / "metrics.yaml").read_text()
    assert set(re.findall(r"\$\{([^}]*)\}", text)) == {
        "env:SPILLWAY_CLUSTER",
        "env:SPILLWAY_KAFKA",
        "env:SPILLWAY_OTLP_GRPC_LISTEN",
        "env:SPILLWAY_OTLP_HTTP_LISTEN",
        "env:SPILLWAY_HEALTH_LISTEN",
        "env:SPILLWAY_STATE_DIR",
        "env:SPILLWAY_METRICS_HOST",
        "env:SPILLWAY_METRICS_PORT",
    }


def test_an_accepted_request_is_on_disk():
    """Nothing before the persistent queue holds data; it is bounded, and retried for ever."""
    for pipeline in CONFIG["service"]["pipelines"].values():
        assert pipeline["processors"] == ["memory_limiter", "resource"]
    assert QUEUE["storage"] in CONFIG["extensions"] and QUEUE["storage"] in CONFIG["service"]["extensions"]
    assert QUEUE["sizer"] == "bytes" and QUEUE["queue_size"] > 0
    assert EXPORTER["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_producer_stays_within_the_stack_brokers_message_size():
    """The stack's broker takes what the producer may send; otherwise it would be refused for good."""
    settings = (BOX.parent / "infra" / "kafka" / "server.properties").read_text()
    limit = int(re.search(r"^message\.max\.bytes=(\d+)$", settings, re.MULTILINE).group(1))
    assert EXPORTER["producer"]["max_message_bytes"] <= limit


def test_every_component_in_the_configuration_is_in_the_manifest():
    """Nothing is configured that the distribution does not carry."""
    for kind in ("receivers", "processors", "exporters", "extensions"):
        carried = {
            re.sub(r"[^a-z]", "", entry["gomod"].split()[0].rsplit("/", 1)[1]) for entry in MANIFEST[kind]
        }
        for component in CONFIG[kind]:
            name = component.replace("_", "")
            assert name in carried or name + kind[:-1] in carried, f"{kind}: {component} is not in {carried}"


def test_manifest_and_go_mod_pin_the_same_versions():
    """The builder's manifest and the committed go.mod cannot drift apart."""
    go_mod = (BOX / "distribution" / "go.mod").read_text()
    kinds = ("receivers", "processors", "exporters", "extensions", "providers")
    for entry in (entry for kind in kinds for entry in MANIFEST[kind]):
        assert f"\t{entry['gomod']}\n" in go_mod, entry["gomod"]

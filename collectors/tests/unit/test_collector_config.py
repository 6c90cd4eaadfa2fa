"""Compares config.yaml as data with the contracts and the builder's manifest. Starts nothing."""

import re
from pathlib import Path

import yaml
from spillway_contracts import names

BOX = Path(__file__).resolve().parents[2]
CONFIG = yaml.safe_load((BOX / "config.yaml").read_text())
MANIFEST = yaml.safe_load((BOX / "builder-config.yaml").read_text())
AGENT = yaml.safe_load((BOX / "agent.yaml").read_text())
EXPORTER = CONFIG["exporters"]["kafka_partition"]
QUEUE = EXPORTER["sending_queue"]
FILES = ("config.yaml", "metrics.yaml", "otlp-tls.yaml", "otlp-client-ca.yaml")


def test_topics_are_those_of_the_contracts():
    """Spans and metrics go to the topics of the collector's cluster."""
    placeholders = {"cluster": "${env:SPILLWAY_CLUSTER}"}
    assert EXPORTER["traces"] == {"topic": names.KAFKA_CLUSTER_TOPIC_OTLP_SPANS.format(**placeholders)}
    metrics = names.KAFKA_CLUSTER_TOPIC_OTLP_METRICS.format(**placeholders)
    assert EXPORTER["metrics"] == {"topic": metrics, "flush_timeout": "50ms"}


def test_cluster_attribute_is_that_of_the_contracts_and_is_only_inserted():
    """The cluster's name has the contracts' key and overwrites no value that a proxy sends."""
    assert CONFIG["processors"]["resource"]["attributes"] == [
        {"key": names.SPAN_ATTRIBUTE_CLUSTER, "value": "${env:SPILLWAY_CLUSTER}", "action": "insert"}
    ]


def test_what_comes_from_the_environment_has_no_default():
    """Every placeholder is a plain ${env:NAME}.

    A default would be an identity that nobody chose.
    """
    text = "".join((BOX / name).read_text() for name in FILES)
    assert set(re.findall(r"\$\{([^}]*)\}", text)) == {
        "env:SPILLWAY_CLUSTER",
        "env:SPILLWAY_KAFKA",
        "env:SPILLWAY_OTLP_GRPC_LISTEN",
        "env:SPILLWAY_OTLP_HTTP_LISTEN",
        "env:SPILLWAY_HEALTH_LISTEN",
        "env:SPILLWAY_STATE_DIR",
        "env:SPILLWAY_METRICS_HOST",
        "env:SPILLWAY_METRICS_PORT",
        "env:SPILLWAY_OTLP_TLS_CERT",
        "env:SPILLWAY_OTLP_TLS_KEY",
        "env:SPILLWAY_OTLP_TLS_CLIENT_CA",
    }


def test_an_accepted_request_is_on_disk():
    """No component before the persistent queue holds data.

    The queue is bounded and retries for ever.
    """
    for pipeline in CONFIG["service"]["pipelines"].values():
        assert pipeline["processors"] == ["memory_limiter", "resource"]
    assert QUEUE["storage"] in CONFIG["extensions"] and QUEUE["storage"] in CONFIG["service"]["extensions"]
    assert QUEUE["sizer"] == "bytes" and QUEUE["queue_size"] > 0
    assert EXPORTER["retry_on_failure"]["max_elapsed_time"] == "0s"


def test_no_request_that_the_agent_accepts_is_too_large_for_its_batches_or_the_gateway():
    """The agent's batches and the gateway have room for every request that the agent accepts.

    exporterhelper drops a span above max_size, and the spans after it in its batch. At that time
    the sender has already received OK.
    """
    protocols = AGENT["receivers"]["otlp"]["protocols"]
    largest = max(
        protocols["grpc"]["max_recv_msg_size_mib"] << 20, protocols["http"]["max_request_body_size"]
    )
    batch = AGENT["exporters"]["otlp_grpc"]["sending_queue"]["batch"]
    assert batch["sizer"] == "bytes"
    assert batch["min_size"] + largest < batch["max_size"]
    gateway = CONFIG["receivers"]["otlp"]["protocols"]["grpc"]["max_recv_msg_size_mib"]
    assert batch["max_size"] < gateway << 20


def test_producer_stays_within_the_stack_brokers_message_size():
    """The stack's broker accepts messages of the producer's maximum size.

    Otherwise it would refuse them for good.
    """
    settings = (BOX.parent / "infra" / "kafka" / "server.properties").read_text()
    limit = int(re.search(r"^message\.max\.bytes=(\d+)$", settings, re.MULTILINE).group(1))
    assert EXPORTER["max_message_bytes"] <= limit


def test_kafka_is_spoken_to_over_tls_unless_the_launcher_says_otherwise():
    """The shared configuration switches off neither TLS nor its verification."""
    assert not {"insecure", "insecure_skip_verify"} & EXPORTER["tls"].keys()


def test_every_component_in_the_configuration_is_in_the_manifest():
    """Every configured component is part of the distribution."""
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
        if "path" in entry:
            module = entry["gomod"].split()[0]
            assert f"\nreplace {module} => ../{entry['path'].removeprefix('./')}\n" in go_mod, module
            assert (BOX / entry["path"] / "go.mod").read_text().startswith(f"module {module}\n")


def test_our_component_and_the_distribution_pin_the_same_versions():
    """The component is tested with the versions that the distribution carries."""

    def pins(folder: str) -> dict[str, str]:
        return dict(re.findall(r"^\t(\S+) (v\S+)", (BOX / folder / "go.mod").read_text(), re.MULTILINE))

    ours, carried = pins("kafkapartitionexporter"), pins("distribution")
    assert {
        module: version for module, version in ours.items() if carried.get(module, version) != version
    } == {}
    assert len(ours.keys() & carried.keys()) > 20

"""Guardrail files: strict keys, and values checked against the topology."""

import pytest
from spillway_contracts import ContractError, guardrails

BAD = [
    ("maximum_shfit: 3", "maximum_shfit: unknown key; keys: canary, denied_destinations"),
    ("maximum_shift: 0", "maximum_shift: Input should be greater than or equal to 1; got 0"),
    ("maximum_shift: 10001", "maximum_shift: Input should be less than or equal to 10000"),
    ("kill: 'yes'", "kill: Input should be a valid boolean; got 'yes'"),
    ("freeze: 1", "freeze: Input should be a valid boolean; got 1"),
    ("{frozen: true, kill: true}", "frozen, kill: two names of one key; only kill is allowed"),
    (
        "denied_destinations: [{clusters: [atlantis]}]",
        "denied_destinations[0].clusters[0]: unknown cluster 'atlantis'",
    ),
    (
        "denied_destinations: [{cluster: north}]",
        "cluster: unknown key; keys: clusters, source_cluster, traffic_class",
    ),
    ("denied_destinations: [{clusters: [north], traffic_class: x}]", "traffic class 'x': expected"),
    ("{kill: true, shadow: true}", "kill, shadow: both true"),
    ("drained_clusters: [atlantis]", "drained_clusters: unknown cluster 'atlantis'; clusters: island"),
    ("drained_clusters: [north, south, island]", "at least one cluster must stay"),
    ("drained_clusters: north", "drained_clusters: Input should be a valid list; got 'north'"),
    ("utilisation_ceiling: 80", "utilisation_ceiling: Input should be less than or equal to 1; got 80"),
    ("utilisation_ceiling: 0", "utilisation_ceiling: Input should be greater than 0"),
    ("egress_budget_usd_per_hour: -1", "egress_budget_usd_per_hour: Input should be greater than or equal"),
    ("egress_budget_usd_per_hour: .inf", "egress_budget_usd_per_hour: Input should be a finite number"),
    ("maximum_age_seconds: .inf", "maximum_age_seconds: Input should be a finite number; got inf"),
    ("pins: [!!map [a]]", "cannot be read: must be a mapping"),
    ("kill: true\nkill: false", "key 'kill' is there twice; once is allowed"),
    (
        "denied_destinations: [{clusters: [north], traffic_class: 'shpo GET /'}]",
        "denied_destinations[0].traffic_class: unknown service 'shpo'; services: archive, shop",
    ),
    (
        "latency_values: [{traffic_class: shop GET /, value: 0}]",
        "latency_values.0.value: Input should be greater than or equal to 0.01; got 0",
    ),
    (
        "latency_values: [{traffic_class: shop GET /, value: 101}]",
        "latency_values.0.value: Input should be less than or equal to 100; got 101",
    ),
    (
        "latency_values: [{traffic_class: shop GET /, usd: 1}]",
        "usd: unknown key; keys: traffic_class, value",
    ),
    (
        "latency_values: [{traffic_class: shpo GET /, value: 2}]",
        "latency_values[0].traffic_class: unknown service 'shpo'; services: archive, shop",
    ),
    (
        "latency_values: [{traffic_class: shop GET /, value: 2}, {traffic_class: shop GET /, value: 3}]",
        "latency_values[1].traffic_class: a second value for 'shop GET /'; one is allowed",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p99_ms: 0, value: 1}]",
        "tail_targets.0.p99_ms: Input should be greater than 0; got 0",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p99_ms: 3600001, value: 1}]",
        "tail_targets.0.p99_ms: Input should be less than or equal to 3600000; got 3600001",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p99_ms: .nan, value: 1}]",
        "tail_targets.0.p99_ms: Input should be a finite number; got nan",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p99_ms: 250, value: 101}]",
        "tail_targets.0.value: Input should be less than or equal to 100; got 101",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p99_ms: 250}]",
        "tail_targets.0.value: Field required",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p95_ms: 250, value: 1}]",
        "p95_ms: unknown key; keys: p99_ms, traffic_class, value",
    ),
    (
        "tail_targets: [{traffic_class: shpo GET /, p99_ms: 250, value: 2}]",
        "tail_targets[0].traffic_class: unknown service 'shpo'; services: archive, shop",
    ),
    (
        "tail_targets: [{traffic_class: shop GET /, p99_ms: 250, value: 2}, "
        "{traffic_class: shop GET /, p99_ms: 300, value: 2}]",
        "tail_targets[1].traffic_class: a second target for 'shop GET /'; one is allowed",
    ),
    (
        "whole_classes: [shop GET /, shpo GET /]",
        "whole_classes[1]: unknown service 'shpo'; services: archive, shop",
    ),
    (
        "whole_classes: [shop GET /, archive GET /, shop GET /]",
        "whole_classes[2]: 'shop GET /' is named twice; once is allowed",
    ),
    ("extrapolation_caution: -1", "extrapolation_caution: Input should be greater than or equal to 0"),
    ("extrapolation_caution: .inf", "extrapolation_caution: Input should be less than or equal to 100"),
    ("canary: {share: 100}", "canary.seconds: Field required"),
    (
        "canary: {share: 100, seconds: 5}",
        "canary.seconds: Input should be greater than or equal to 10; got 5",
    ),
    ("canary: {share: 0, seconds: 60}", "canary.share: Input should be greater than or equal to 1; got 0"),
    ("canary: {seconds: 60}", "canary: every Envoy takes part; share must be below 10000, or clusters must"),
    ("canary: {seconds: 60, clusters: [north, south, island]}", "canary: every Envoy takes part"),
    (
        "canary: {seconds: 60, clusters: [atlantis]}",
        "canary.clusters[0]: unknown cluster 'atlantis'; clusters: island, north, south",
    ),
    (
        "canary: {seconds: 3600, share: 1}",
        "canary.seconds: 3600; must be at most maximum_expiry_seconds 3600 minus 60",
    ),
    (
        "canary: {seconds: 60, share: 1, proxies: 3}",
        "canary.proxies: unknown key; keys: clusters, cost_rise, failed_share, seconds, share",
    ),
    ("a: 2026-13-45", "cannot be read"),
    ("- a list", "(the document): Input should be"),
    ("a: b: c", "cannot be read"),
]
PIN = "pins: [{source_cluster: %s, source_service: web, traffic_class: 'shop GET /', destinations: {%s}}]"


def read(tmp_path, topology, text):
    path = tmp_path / "guardrails.yaml"
    path.write_text(text)
    return guardrails.load(path, topology)


@pytest.mark.parametrize(("text", "says"), BAD)
def test_what_is_wrong_is_named(tmp_path, topology, text, says):
    """Each mistake gives an error that names the file, the key and what is allowed."""
    with pytest.raises(ContractError) as error:
        read(tmp_path, topology, text)
    assert says in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "guardrails.yaml"))


@pytest.mark.parametrize(
    ("source", "destinations", "extra", "says"),
    [
        ("north", "north: 9000", "", "pins[0].destinations: weights sum to 9000; must be 10000"),
        ("south", "island: 10000", "", "pins[0].destinations: no link 'south' to 'island'"),
        (
            "north",
            "south: 10000",
            "\ndrained_clusters: [south]",
            "['south'] are all drained; at least one must not",
        ),
        (
            "north",
            "north: 10000",
            "",
            "pins[0].source_service: unknown service 'web'; services: archive, shop",
        ),
        ("north", "south: 10000", "\ndenied_destinations: [{clusters: [south]}]", "is a denied destination"),
    ],
)
def test_pins_must_be_possible(tmp_path, topology, source, destinations, extra, says):
    """A pin that could never be published is an error at the start, not at every ruleset."""
    with pytest.raises(ContractError, match="pins") as error:
        read(tmp_path, topology, PIN % (source, destinations) + extra)
    assert says in str(error.value)


def test_empty_and_absent_files_are_the_default(tmp_path, topology):
    """Without a guardrail file, or with an empty one, the defaults apply."""
    assert read(tmp_path, topology, "") == guardrails.load(None, topology) == guardrails.Guardrails()


def test_the_former_name_of_the_kill_switch_counts_for_one_version(tmp_path, topology, caplog):
    """`frozen` means `kill`, and a log line names both and the file."""
    found = read(tmp_path, topology, "frozen: true")
    assert found == guardrails.Guardrails(kill=True) and found.holding == "kill: true in the guardrails"
    [line] = caplog.messages
    assert line == f"{tmp_path}/guardrails.yaml: frozen is now kill; the next version refuses frozen"

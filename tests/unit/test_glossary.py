"""docs/glossary.md defines the nouns in names on wires.

These are the names of tables, columns, messages, fields, topics, subjects, keys, headers,
attributes, metrics and settings.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = yaml.safe_load((ROOT / "contracts/names.yaml").read_text())
ROWS = yaml.safe_load((ROOT / "contracts/rows.yaml").read_text())
EXPORTER = "collectors/kafkapartitionexporter/metadata.yaml"
CREATED = r"CREATE (?:OR REPLACE )?(?:TABLE|(?:MATERIALIZED )?VIEW) (?:IF NOT EXISTS )?(\w+)"
# A column of a table, a column that a later file adds, and a column of a view.
COLUMNS = (
    r"^    ([a-z]\w*) +[A-Z]\w+",
    r"ADD COLUMN (?:IF NOT EXISTS )?(\w+)",
    r"\bAS (\w+)(?=,|\n)",
)
DECLARED = r"^(?:message|enum) (\w+)"
FIELD = r"^  (?:[\w.]+ )*(\w+) = \d+;"
# Pages have settings and metrics in the first column of their tables.
CELL = r"^\| (`?(?:SPILLWAY|spillway|otelcol)_[^|]*)\|"
LISTED = r"\b(?:SPILLWAY|spillway_(?:optimizer|publisher|relay|streams)|otelcol)_\w+"
PAGES = ("collectors", "infra/clickhouse", "infra/envoy", "optimizer", "rule-publisher", "streams")
VALUES = "value"  # the group of names.yaml that holds values instead of names

# Words that mean here what they mean in everyday use or in another standard, by kind. A word is
# either here or in the glossary.
PLAIN = {
    "units": """
        byte gb hour million ms ms2 per rps rtt s second sq timestamp us usd
    """,
    "statistics": """
        bic correlation effect max mean min p p50 p99 probability rmse sd se separation statistic sum
    """,
    "symbols of SLATE": """
        a ab alpha b delta gamma perf sigma tau theta u
    """,
    "everyday nouns": """
        age author change detail difference duration error expiry gain half interval item kind level life
        memory name note outcome overflow period rate reason region row setting share size state
        success user variant
    """,
    "computing": """
        connection cpu dependency dir file grant lag lateness plaintext port process queue replica
        server thread timeout
    """,
    "programs": """
        clickhouse envoy kafka kubernetes nats redis spillway wasm
    """,
    "HTTP, gRPC and DNS": """
        address body client code dns grpc header http id ip method protocol request resend response
        rpc scheme status system try type url x
    """,
    "TLS and SASL": """
        ca cert certificate handshake identity password sasl scope signature tls
    """,
    "OpenTelemetry and W3C": """
        attribute export exporter instance metric otelcol otlp parent receiver rss traceparent
        tracestate utilization
    """,
    "Kafka and NATS": """
        consumer inbox message offset partition
    """,
    "Envoy and xDS": """
        ack callout check flag health nack push resource sds xds
    """,
    "Kubernetes": """
        container context family k8s kubeconfig kubelet label namespace node selector
    """,
    "verbs": """
        accept admitted audited become changed conclude confirm connected counted created cut denied
        dropped expire expired explained fail failed finished fit fitted flush found heard held idle ignored
        listen lost measured observed opened overridden placed predicted recovered refresh refused
        rejected remember renew replayed reporting reset resolved sent served settle skipped stamped started
        store stored taken truncated wait waiting written
    """,
    "other words": """
        after alive alone away bad before by duplicate effective end from high immediate internal
        known last low malformed nearest never newest none not ok oldest original other ready
        relative stale start to unadmitted undecodable unreachable unsigned unspecified unstored until
        up urgent well wrong
    """,
}
# Second words for what has a name already: the word that means the same, and the names that
# have the second word. No further name may have it.
SYNONYMS = {
    "app": ("application", {"spillway-app"}),
    "child": ("callee", {"child_effect", "child_p_value", "child_statistic"}),
    "norm": ("normalised", {"norm_weight"}),
    "now": (
        "force",
        {"now_egress_usd_per_hour", "now_mean_latency_ms", "now_objective_usd_per_hour"},
    ),
    "record": (
        "message",
        {
            "spillway_streams_consumer_lag_records",
            "spillway_streams_newest_record_timestamp_seconds",
        },
    ),
    "ttl": ("expiry", {"SPILLWAY_OPTIMIZER_TTL_S", "SPILLWAY_PAPA_TTL_S", "ttl_seconds"}),
}
SINGULAR = ("dns", "kubernetes", "nats", "previous", "redis", "status")


def words(name: str) -> list[str]:
    """Returns the words of a name in lower case and singular.

    {placeholders}, lengths of time such as 1s, and versions such as v1 are left out.
    """
    name = re.sub(r"\{[a-z_]+\}|(?<![a-z])\d+s\b|'s\b|\bv\d+\b", "", name)
    split = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z][a-z0-9]*", name)
    return [singular(word.lower()) for word in split]


def singular(word: str) -> str:
    if word.endswith(SINGULAR) or len(word) <= 3:
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


@cache
def glossary() -> frozenset[str]:
    """Returns the words in the first column of the glossary, without remarks in brackets."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    return frozenset(word for row in rows if row != "word" for word in words(re.sub(r"\([^)]*\)", "", row)))


@cache
def plain() -> frozenset[str]:
    return frozenset(word for kind in PLAIN.values() for word in kind.split())


@cache
def defined() -> frozenset[str]:
    return glossary() | plain()


def tables() -> Iterator[tuple[str, str]]:
    """Yields the names of tables and columns, each with its file."""
    for file in sorted((ROOT / "contracts/clickhouse").glob("*.sql")):
        text = re.sub(r"--.*", "", file.read_text())
        for pattern in (CREATED, *COLUMNS):
            for name in re.findall(pattern, text, re.MULTILINE):
                yield name, f"contracts/clickhouse/{file.name}"
    for row, entry in ROWS.items():
        for name in (row, *entry["columns"]):
            yield name, "contracts/rows.yaml"


def messages() -> Iterator[tuple[str, str]]:
    """Yields the names of messages, enums, fields and enum values, each with its file."""
    for file in sorted((ROOT / "contracts/proto").rglob("*.proto")):
        for pattern in (DECLARED, FIELD):
            for name in re.findall(pattern, file.read_text(), re.MULTILINE):
                yield name, f"contracts/proto/{file.name}"


def names() -> Iterator[tuple[str, str]]:
    """Yields the names of names.yaml, among them topics, keys, headers, attributes and stats."""
    for group, entries in NAMES.items():
        if group != VALUES:
            for name in entries.values():
                yield name, f"contracts/names.yaml, {group}"


def settings_and_metrics() -> Iterator[tuple[str, str]]:
    """Yields the settings and metrics of the boxes' pages, most of which other tests check."""
    for page in sorted(path for folder in PAGES for path in (ROOT / folder).rglob("*.md")):
        for cell in re.findall(CELL, page.read_text(), re.MULTILINE):
            for name in re.findall(LISTED, cell):
                yield name, str(page.relative_to(ROOT))
    for name in yaml.safe_load((ROOT / EXPORTER).read_text())["telemetry"]["metrics"]:
        yield name, EXPORTER


@cache
def wires() -> dict[str, str]:
    """Returns all names with the first file that has each."""
    found: dict[str, str] = {}
    for read in (tables, messages, names, settings_and_metrics):
        for name, file in read():
            found.setdefault(name, file)
    return found


def undefined(name: str) -> list[str]:
    """Returns the words of a name that no list has."""
    allowed = {word for word, (_, uses) in SYNONYMS.items() if name in uses}
    return [word for word in words(name) if word not in defined() and word not in allowed]


@pytest.mark.parametrize("name", wires())
def test_every_noun_of_the_name_is_in_the_glossary(name: str):
    """Or it is a plain word, or a synonym that this name may have."""
    unknown = undefined(name)
    assert not unknown, (
        f"{wires()[name]}: {name!r} has {', '.join(unknown)}: add it to docs/glossary.md, "
        "or use the word that the glossary has for this concept"
    )


def test_a_word_that_the_glossary_does_not_have_is_found():
    assert undefined("forwarder_quotas") == ["forwarder", "quota"]
    assert undefined("spillway:ForwarderQuota:{cluster}") == ["forwarder", "quota"]
    assert undefined("SPILLWAY_FORWARDER_QUOTA_S") == ["forwarder", "quota"]


def test_names_of_every_kind_are_read():
    """One name of each kind and file format."""
    kinds = {
        "solves", "load_1s", "started_at", "now_mean_latency_ms", "service_rate", "class_stamped",
        "Ruleset", "OUTCOME_NACK", "per_try", "base_version", "changed_by", "otlp_spans",
        "SPILLWAY_REPORTS", "spillway:policy", "spillway-mark", "Spillway-Key-Id",
        "x-spillway-no-answer", "spillway.load.in_flight", "spillway_totals_failures",
        "SPILLWAY_STREAMS_WINDOW_S", "SPILLWAY_RELAY_RULESET_HOLD_S", "SPILLWAY_NATS_KEY",
        "SPILLWAY_POLICY", "SPILLWAY_GATEWAY_CA",
        "spillway_optimizer_leader", "spillway_publisher_ready", "spillway_streams_state",
        "spillway_relay_streams_opened_total", "otelcol_exporter_queue_size",
        "exporter_kafka_partition_splits",
    }  # fmt: skip
    assert kinds - wires().keys() == set()


def test_a_word_is_in_one_list():
    """The glossary, the plain words and the synonyms share no word. No list has a word twice."""
    listed = [word for kind in PLAIN.values() for word in kind.split()] + list(SYNONYMS)
    assert sorted(word for word in set(listed) if listed.count(word) > 1) == []
    assert sorted(glossary() & set(listed)) == []


def test_the_lists_beside_the_glossary_are_sorted_and_in_use():
    """A word that no name has any more leaves its list. A synonym has a word to replace it."""
    for kind in (*(kind.split() for kind in PLAIN.values()), list(SYNONYMS)):
        assert kind == sorted(kind)
    used = {word for name in wires() for word in words(name)}
    assert sorted(plain() - used) == []
    for word, (better, uses) in SYNONYMS.items():
        assert better in defined()
        assert {name for name in wires() if word in words(name)} == uses

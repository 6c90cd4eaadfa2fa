"""docs/glossary.md defines the nouns in names of tables, messages, topics, subjects and keys."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = yaml.safe_load((ROOT / "contracts/names.yaml").read_text())
# Words of everyday use or of another standard, which mean here what they mean there.
PLAIN = frozenset("dns kubernetes otlp metric spillway setting timeout ack cpu".split())
CREATED = r"CREATE (?:OR REPLACE )?(?:TABLE|(?:MATERIALIZED )?VIEW) (?:IF NOT EXISTS )?(\w+)"
GROUPS = ("kafka_topic", "kafka_cluster_topic", "nats_stream", "nats_subject", "nats_bucket", "redis_key")


def words(name: str) -> list[str]:
    """Returns the words of a name in lower case and singular; {placeholders} are left out."""
    name = re.sub(r"\{[a-z_]+\}|\d+s\b|'s\b", "", name)
    split = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return [singular(word.lower()) for word in split]


def singular(word: str) -> str:
    if word.endswith("ies"):
        return word[:-3] + "y"
    is_plural = word.endswith("s") and not word.endswith(("ss", "dns", "kubernetes")) and len(word) > 3
    return word[:-1] if is_plural else word


def glossary() -> set[str]:
    """Returns the words in the first column of the glossary, without remarks in brackets."""
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    return {word for row in rows if row != "word" for word in words(re.sub(r"\([^)]*\)", "", row))}


def wires() -> dict[str, str]:
    """Returns the names of tables, messages, topics, subjects and keys, with their files."""
    found = {}
    for file in sorted((ROOT / "contracts/clickhouse").glob("*.sql")):
        for table in re.findall(CREATED, file.read_text()):
            found[table] = f"contracts/clickhouse/{file.name}"
    for file in sorted((ROOT / "contracts/proto").rglob("*.proto")):
        for message in re.findall(r"^message (\w+)", file.read_text(), re.MULTILINE):
            found[message] = f"contracts/proto/{file.name}"
    for group in GROUPS:
        found.update(dict.fromkeys(NAMES[group].values(), f"contracts/names.yaml, {group}"))
    return found


def undefined(name: str) -> list[str]:
    """Returns the words of a name that the glossary does not define."""
    return [word for word in words(name) if word not in glossary() | PLAIN]


@pytest.mark.parametrize("name", wires())
def test_every_noun_of_the_name_is_in_the_glossary(name: str):
    unknown = undefined(name)
    assert not unknown, (
        f"{wires()[name]}: {name!r} has {', '.join(unknown)}: add it to docs/glossary.md, "
        "or use the word that the glossary has for this concept"
    )


def test_a_word_that_the_glossary_does_not_have_is_found():
    assert undefined("forwarder_quotas") == ["forwarder", "quota"]
    assert undefined("spillway:ForwarderQuota:{cluster}") == ["forwarder", "quota"]


def test_names_of_every_kind_are_read():
    some = {"solves", "load_1s", "Ruleset", "otlp_spans", "SPILLWAY_REPORTS", "spillway:policy"}
    assert some <= wires().keys()

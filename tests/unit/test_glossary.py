"""docs/glossary.md defines every noun that stands in a name on a wire."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = yaml.safe_load((ROOT / "contracts/names.yaml").read_text())
# Words of everyday use or of another standard, which mean here what they mean there.
PLAIN = frozenset("dns kubernetes otlp metric spillway setting timeout ack letter cpu seconds all".split())
GROUPS = ("kafka_topic", "kafka_cluster_topic", "nats_stream", "nats_subject", "nats_bucket", "redis_key")


def words(name: str) -> list[str]:
    """Returns the words of a name in lower case and singular; {placeholders} are left out."""
    name = re.sub(r"\{[a-z_]+\}", "", name)
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
    return {word for row in rows for word in words(re.sub(r"\([^)]*\)", "", row))}


def wires() -> dict[str, str]:
    """Returns the names of tables, messages, topics, subjects and keys, with their files."""
    found = {}
    for file in sorted((ROOT / "contracts/clickhouse").glob("*.sql")):
        for table in re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", file.read_text()):
            found[table] = f"contracts/clickhouse/{file.name}"
    for file in sorted((ROOT / "contracts/proto").rglob("*.proto")):
        for message in re.findall(r"^message (\w+)", file.read_text(), re.MULTILINE):
            found[message] = f"contracts/proto/{file.name}"
    for group in GROUPS:
        found.update(dict.fromkeys(NAMES[group].values(), f"contracts/names.yaml, {group}"))
    return found


@pytest.mark.parametrize("name", wires())
def test_every_noun_in_a_name_on_a_wire_is_in_the_glossary(name: str):
    unknown = [word for word in words(name) if word not in glossary() | PLAIN]
    assert not unknown, (
        f"{wires()[name]}: {name!r} has {', '.join(unknown)}: add it to docs/glossary.md, "
        "or use the word that the glossary has for this concept"
    )


def test_a_second_word_for_a_concept_is_found():
    """The test above would fail for a table `forwarder_quotas`, whose words mean nothing here."""
    assert not {"forwarder", "quota"} & (glossary() | PLAIN)
    assert words("forwarder_quotas") == ["forwarder", "quota"]

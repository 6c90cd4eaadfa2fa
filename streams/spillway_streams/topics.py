"""Kafka topics: declared before anything reads or writes them."""

from pathlib import Path

import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code
from spillway_contracts import names

from spillway_streams import StreamsError

KNOWN = {value for key, value in vars(names).items() if key.startswith("KAFKA_TOPIC_")}


def read(path: Path, default_partitions: int) -> dict[str, int]:
    """Partitions per topic from a file `topic: {partitions: n}`; StreamsError names what is wrong."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise StreamsError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise StreamsError(f"{path}: must map topic names to {{partitions: n}}")
    found = {}
    for topic, options in document.items():
        partitions = (options or {}).get("partitions", default_partitions)
        if topic not in KNOWN:
            raise StreamsError(f"{path}: {topic}: unknown topic; topics: {', '.join(sorted(KNOWN))}")
        if not isinstance(partitions, int) or partitions < 1:
            raise StreamsError(f"{path}: {topic}.partitions: {partitions!r} must be a whole number above 0")
        found[topic] = partitions
    return found


async def create(brokers: list[str], partitions: dict[str, int], replicas: int) -> list[str]:
    """Creates the topics that are missing and returns their names; existing ones stay as they are."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers, request_timeout_ms=10_000)
    try:
        await admin.start()
        existing = set(await admin.list_topics())
        missing = {topic: n for topic, n in partitions.items() if topic not in existing}
        if missing:
            response = await admin.create_topics([NewTopic(t, n, replicas) for t, n in missing.items()])
            for topic, code, *_ in response.topic_errors:
                if code not in (0, TopicAlreadyExistsError.errno):
                    raise for_code(code)(f"{topic}: cannot be created")
        return sorted(missing)
    finally:
        await admin.close()

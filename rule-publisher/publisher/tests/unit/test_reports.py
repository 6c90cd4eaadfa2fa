"""Decoding and checking the relays' reports."""

import pytest
from spillway.v1.acknowledgement_pb2 import Acknowledgement
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names
from spillway_publisher.clients import rows
from spillway_publisher.service.reports import Malformed, batches, read_report


@pytest.mark.parametrize(
    ("data", "subject", "reason"),
    [
        (b"\xff\xff", "spillway.heartbeats.north", "undecodable"),
        (
            Heartbeat(cluster="atlantis").SerializeToString(),
            "spillway.heartbeats.atlantis",
            "unknown_cluster",
        ),
        (Heartbeat(cluster="north").SerializeToString(), "spillway.heartbeats.south", "subject"),
        (
            Heartbeat(cluster="north", ruleset_version=2**63).SerializeToString(),
            "spillway.heartbeats.north",
            "version",
        ),
        (
            b"\x0a\x05north\x12\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01",
            "spillway.heartbeats.north",
            "time",
        ),
    ],
)
def test_malformed_reports_have_a_reason(data, subject, reason):
    """Every kind of malformed report has its own reason."""
    with pytest.raises(Malformed) as error:
        read_report(Heartbeat, data, subject, names.NATS_SUBJECT_HEARTBEATS, {"north", "south"})
    assert error.value.reason == reason


def test_acknowledgement_without_outcome_or_time_is_no_row():
    """A row needs an outcome and a time that the table can store."""
    message = Acknowledgement(cluster="north", outcome=1)
    with pytest.raises(ValueError, match="at: 1970"):
        rows.acknowledgement_row(message)
    message.at.FromSeconds(1_800_000_000)
    assert rows.acknowledgement_row(message)[6] == "ack"
    message.outcome = 0
    with pytest.raises(ValueError, match="outcome: 0; must be"):
        rows.acknowledgement_row(message)


class Consumer:
    """Answers each fetch with the next of `answers`, and counts questions about itself."""

    def __init__(self, *answers) -> None:
        self.answers, self.asked = list(answers), 0

    async def fetch(self, count: int, timeout: float) -> list[str]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def consumer_info(self) -> None:
        self.asked += 1


async def test_a_fetch_without_messages_is_no_batch():
    """A server that is restarted ends a fetch early, and nats-py returns an empty list."""
    consumer = Consumer([], TimeoutError(), ["first"], ["second"])
    found = batches(consumer)
    assert [await anext(found), await anext(found)] == [["first"], ["second"]]
    assert consumer.asked == 2

"""A proposer asks for its stream until it has it."""

from types import SimpleNamespace

import nats
import pytest
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_optimizer.clients import proposals


class Server:
    """A NATS server whose JetStream is away for the first request of each kind."""

    def __init__(self) -> None:
        self.asked, self.closed, self.published = 0, 0, []

    async def connect(self, url: str, **options: object) -> SimpleNamespace:
        jetstream = SimpleNamespace(add_stream=self._add_stream, publish=self._publish)
        return SimpleNamespace(
            is_closed=False, is_connected=True, jetstream=lambda: jetstream, close=self._close
        )

    async def _add_stream(self, stream: object) -> None:
        self.asked += 1
        if self.asked == 1:
            raise nats.errors.TimeoutError

    async def _publish(self, subject: str, body: bytes, **options: object) -> None:
        self.published.append(body)

    async def _close(self) -> None:
        self.closed += 1


async def test_a_stream_that_was_not_created_is_asked_for_again(monkeypatch) -> None:
    """The first request for the stream times out. The next proposal asks again, and is stored."""
    server = Server()
    monkeypatch.setattr(proposals.nats_client, "connect", server.connect)
    client = proposals.Proposals("nats://here", "optimizer")
    with pytest.raises(nats.errors.TimeoutError):
        await client.connect()
    assert server.closed == 1
    await client.publish(Ruleset(id="one"))
    assert (server.asked, len(server.published)) == (2, 1)
    await client.publish(Ruleset(id="two"))
    assert (server.asked, len(server.published)) == (2, 2)

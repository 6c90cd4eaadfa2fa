"""The bucket of rulesets in memory: the part of JetStream that bucket.py and values.py use.

Writes are compared and set as by the server. `fail_at` makes a later write fail, before it takes
effect or after it: the publisher cannot tell which.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

from nats.js.api import Header, RawStreamMsg
from nats.js.errors import APIError, NotFoundError

_WRONG_LAST_SEQUENCE = 10071


class JetStreamInMemory:
    """`written`: called with the key and the value of every write that takes effect."""

    def __init__(self, written: Callable[[str, bytes], None]) -> None:
        self.messages: list[RawStreamMsg] = []
        self._written = written
        self._fails_in: int | None = None
        self._after = False

    def fail_at(self, write: int | None, after: bool = False) -> None:
        """Makes the write with this number, counted from 0, fail. None: no write fails."""
        self._fails_in, self._after = write, after

    async def stream_info(self, stream: str, subjects_filter: str):
        subjects = {message.subject: 1 for message in self.messages}
        return SimpleNamespace(state=SimpleNamespace(subjects=subjects))

    async def get_msg(
        self, stream: str, subject: str, seq: int | None = None, next: bool = False
    ) -> RawStreamMsg:
        found = [message for message in self.messages if message.subject == subject]
        if seq is None:
            found = found[-1:]
        else:
            found = [message for message in found if message.seq >= seq][:1]
        if not found:
            raise NotFoundError
        return found[0]

    async def publish(self, subject: str, payload: bytes, headers: dict[str, str]):
        fails = self._fails_in == 0
        if self._fails_in is not None:
            self._fails_in = None if fails else self._fails_in - 1
        if fails and not self._after:
            raise TimeoutError
        last = max((message.seq for message in self.messages if message.subject == subject), default=0)
        if int(headers[Header.EXPECTED_LAST_SUBJECT_SEQUENCE]) != last:
            raise APIError(code=400, err_code=_WRONG_LAST_SEQUENCE, description="wrong last sequence")
        made = RawStreamMsg(
            subject=subject,
            seq=len(self.messages) + 1,
            data=payload,
            headers=dict(headers),
            time=datetime.now(UTC),
        )
        self.messages.append(made)
        self._written(subject.rpartition(".")[2], payload)
        if fails:
            raise TimeoutError
        return SimpleNamespace(seq=made.seq)

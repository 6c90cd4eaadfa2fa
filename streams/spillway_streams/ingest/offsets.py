"""Which messages of a partition are taken: every one, once, in order; and what is noted with a commit. Pure."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    TAKE = "take"
    DROP = "drop"  # read before, or to be read again
    SEEK = "seek"  # something before it is missing: read again from `next_offset`


@dataclass
class Offsets:
    """`next_offset`: what is to be read next. A hole is believed when it is there again after a seek: retention and
    transaction marks make such; a consumer that lost what it had fetched makes others."""

    next_offset: int
    _hole: int | None = None

    def judge(self, offset: int) -> Verdict:
        if offset < self.next_offset:
            return Verdict.DROP
        if offset > self.next_offset and (self._hole is None or offset > self._hole):
            if self._hole is not None:
                return Verdict.DROP  # fetched behind the hole, before the seek
            self._hole = offset
            return Verdict.SEEK
        # The next one, or the first after the seek: one up to where the hole was seen to end cannot be of before it.
        self._hole = None
        self.next_offset = offset + 1
        return Verdict.TAKE

    def sought(self) -> None:
        """Reading begins anew at next_offset: whatever comes first is judged afresh."""
        self._hole = None


class Note(NamedTuple):
    """Goes with a commit. `read`: dead letters of messages before this offset are delivered, though they are read
    again; `horizon_ms`: how far behind what is stored the commit lies, None: not told."""

    read: int = 0
    horizon_ms: int | None = None

    def __str__(self) -> str:
        return f"read={self.read} horizon={self.horizon_ms}"


def noted(text: str) -> Note:
    """The inverse; an empty one for another's note."""
    found = re.fullmatch(r"read=(\d+) horizon=(\d+)", text, re.ASCII)
    return Note(int(found[1]), int(found[2])) if found else Note()

"""Takes every message of a partition once and in order, and writes the note of a commit. Pure."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Verdict(Enum):
    """What to do with a message."""

    TAKE = "take"
    DROP = "drop"  # was read before, or will be read again
    SEEK = "seek"  # a message before it is missing: read again from `next_offset`


@dataclass
class Offsets:
    """Decides which messages are taken.

    `next_offset`: the offset to be read next. A hole in the offsets is believed when it is still
    there after a seek. Retention and transaction markers cause such holes. Other holes are caused
    by a consumer that lost what it had fetched.
    """

    next_offset: int
    _hole: int | None = None

    def judge(self, offset: int) -> Verdict:
        """Returns what to do with the message at this offset."""
        if offset < self.next_offset:
            return Verdict.DROP
        if offset > self.next_offset and (self._hole is None or offset > self._hole):
            if self._hole is not None:
                return Verdict.DROP  # was fetched before the seek, and lies behind the hole
            self._hole = offset
            return Verdict.SEEK
        # This is the next message, or the first one after the seek. A message up to where the hole
        # was seen to end cannot have been fetched before the seek.
        self._hole = None
        self.next_offset = offset + 1
        return Verdict.TAKE

    def sought(self) -> None:
        """Notes that reading begins anew at next_offset.

        Whatever message comes first is judged afresh.
        """
        self._hole = None


class Note(NamedTuple):
    """Text that goes with a commit.

    `read`: dead letters have been sent for every message before this offset, although these
    messages are read again. `horizon_ms`: how far the commit lies behind what is stored; None when
    unknown.
    """

    read: int = 0
    horizon_ms: int | None = None

    def __str__(self) -> str:
        return f"read={self.read} horizon={self.horizon_ms}"


def noted(text: str) -> Note:
    """Parses a note. Returns an empty Note for a text that is not one."""
    found = re.fullmatch(r"read=(\d+) horizon=(\d+)", text, re.ASCII)
    return Note(int(found[1]), int(found[2])) if found else Note()

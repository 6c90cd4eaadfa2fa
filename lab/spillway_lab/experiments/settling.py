"""When a system has settled after a change. Pure."""

from collections.abc import Sequence

# Means of so many seconds are compared. They must be longer than chance fluctuations of a queue.
SETTLE_WINDOW_S = 5.0
_STILL = 0.8  # a mean below this share of the one before is still falling


def settled(in_flight: Sequence[tuple[float, int]]) -> bool:
    """Returns whether queues drain no longer, from (seconds, requests in flight) in order of time.

    The mean over the last window must not be clearly below that of the window before. A mean of
    less than one request is settled too. Queues that grow are not waited for: that may be what the
    policy does.
    """
    if not in_flight:
        return False
    end = in_flight[-1][0]
    last = [n for at, n in in_flight if at > end - SETTLE_WINDOW_S]
    before = [n for at, n in in_flight if end - 2 * SETTLE_WINDOW_S < at <= end - SETTLE_WINDOW_S]
    if not before or in_flight[0][0] > end - 2 * SETTLE_WINDOW_S + 1.5:
        return False
    now, then = sum(last) / len(last), sum(before) / len(before)
    return now <= 1 or now >= _STILL * then

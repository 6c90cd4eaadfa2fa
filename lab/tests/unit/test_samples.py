"""Every request counts once: by its latency, or as failed."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spillway_lab.load.samples import (
    LOCAL,
    REMOTE,
    UNKNOWN,
    concatenate,
    parse,
    summarise,
    way,
    without_warm_up,
)


def line(
    at: int = 0, ms: float = 10, code: int = 200, path: str = "g@a,b@a", reason: str = "", error: str = ""
) -> str:
    headers = {"X-Lab-Path": [path]} if path else {}
    if reason:
        headers["X-Lab-Reason"] = [reason]
    timestamp = f"2026-01-01T00:00:{at:02d}.123456789Z"
    return json.dumps(
        {
            "timestamp": timestamp,
            "latency": int(ms * 1e6),
            "code": code,
            "error": error,
            "headers": headers or None,
        }
    )


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("g@a,f@a,b@a", LOCAL),
        ("g@a,f@b", REMOTE),
        ("g@a,f@b,+3", REMOTE),
        ("g@a,+3", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_way(path: str, expected: int) -> None:
    """A hop in another cluster makes the path remote. A truncated path does not count as local."""
    assert way(path, "a") == expected


def test_summary_separates_failures_from_latency() -> None:
    """Failed requests are not in the latencies. They are in the failed share and its reasons."""
    lines = [line(ms=10), line(ms=30, path="g@a,b@b"), line(ms=5000, code=0, path="", error="Client.Timeout")]
    lines += [line(ms=1, code=502, path="g@a", reason="f: 502 b: 503 queue_full")]
    summary = summarise(parse(lines, "a"))
    assert (summary.requests, summary.failed, summary.failed_share) == (4, 2, 0.5)
    assert summary.mean_ms == pytest.approx(20)
    assert summary.remote_share == pytest.approx(1 / 3)
    assert summary.unknown_way == 1
    assert summary.reasons == {"client timeout": 1, "503 queue_full": 1}


def test_warm_up_is_discarded_for_latency_and_failures_alike() -> None:
    """Requests that were sent in the warm-up are in no figure."""
    lines = [line(at=0, code=503, reason="queue_full"), line(at=4, ms=99), line(at=5, ms=7), line(at=9, ms=9)]
    summary = summarise(without_warm_up(parse(lines, "a"), 5))
    assert (summary.requests, summary.failed, summary.reasons) == (2, 0, {})
    assert summary.mean_ms == pytest.approx(8)


def test_nothing_succeeded() -> None:
    """Latency is NaN, not zero, without a success. Without requests the shares are NaN too."""
    assert math.isnan(summarise(parse([line(code=503)], "a")).p99_ms)
    empty = summarise(concatenate([]))
    assert empty.requests == 0
    assert math.isnan(empty.failed_share)


@given(
    st.lists(st.lists(st.tuples(st.floats(0.001, 1e5), st.sampled_from([200, 204, 404, 502, 0])), max_size=8))
)
def test_concatenation_counts_everything_once(parts: list[list[tuple[float, int]]]) -> None:
    """Requests and failures of the whole are the sums over the parts."""
    samples = [parse([line(ms=ms, code=code) for ms, code in part], "a") for part in parts]
    whole = summarise(concatenate(samples))
    assert whole.requests == sum(map(len, parts))
    assert whole.failed == sum(code not in (200, 204) for part in parts for _, code in part)
    assert whole.failed == sum(whole.reasons.values())
    good = [ms for part in parts for ms, code in part if code in (200, 204)]
    if good:
        assert whole.mean_ms == pytest.approx(np.mean(good), rel=1e-3, abs=1e-5)

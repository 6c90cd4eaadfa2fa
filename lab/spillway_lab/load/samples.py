"""What the client saw of each request, in columns, and what that comes to. Pure."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np

_PATH_HEADER, _REASON_HEADER = "X-Lab-Path", "X-Lab-Reason"
# Where a request went, as far as its answer tells.
LOCAL, REMOTE, UNKNOWN = 0, 1, -1


@dataclass(frozen=True)
class Samples:
    """One row per request, in columns of equal length."""

    at_s: np.ndarray  # float, Unix time of sending
    latency_ms: np.ndarray  # float, sent to the last byte of the answer
    code: np.ndarray  # int, HTTP status; 0: no answer
    remote: np.ndarray  # int, LOCAL, REMOTE or UNKNOWN
    reason: np.ndarray  # str, why a request failed; empty when it did not

    @property
    def ok(self) -> np.ndarray:
        """Which requests succeeded: status 200 to 399."""
        return (self.code >= 200) & (self.code < 400)

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True)
class Summary:
    """Latencies are of successful requests, NaN when there are none; shares are 0..1."""

    requests: int
    failed: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    failed_share: float
    remote_share: float  # of the requests whose way is known: any hop outside their entry's cluster
    unknown_way: int  # requests whose answer does not tell where they went
    reasons: dict[str, int]


def parse(lines: Iterable[str | bytes], cluster: str) -> Samples:
    """Reads vegeta's JSON lines of an attack that entered at `cluster`."""
    rows = []
    for line in lines:
        row = json.loads(line)
        headers, code = row.get("headers") or {}, row["code"]
        rows.append(
            (
                datetime.fromisoformat(row["timestamp"]).timestamp(),
                row["latency"] / 1e6,
                code,
                way(_first(headers, _PATH_HEADER), cluster),
                "" if 200 <= code < 400 else _reason(headers, code, row["error"]),
            )
        )
    at, latency, codes, ways, reasons = zip(*rows, strict=True) if rows else ((),) * 5
    return Samples(
        np.array(at, float),
        np.array(latency, float),
        np.array(codes, int),
        np.array(ways, int),
        np.array(reasons, str),
    )


def without_warm_up(samples: Samples, seconds: float) -> Samples:
    """What was sent later than `seconds` after the first request."""
    if not len(samples):
        return samples
    kept = samples.at_s >= samples.at_s.min() + seconds
    return Samples(*(getattr(samples, column.name)[kept] for column in fields(samples)))


def way(path: str, cluster: str) -> int:
    """LOCAL or REMOTE for a path header "service@cluster,..."; a path cut short ("+N" at its end)
    with only local hops left, or none at all, is UNKNOWN."""
    hops = [hop for hop in path.split(",") if hop]
    clusters = {hop.rpartition("@")[2] for hop in hops if "@" in hop}
    if clusters - {cluster}:
        return REMOTE
    return LOCAL if hops and not hops[-1].startswith("+") else UNKNOWN


def concatenate(parts: Iterable[Samples]) -> Samples:
    """All rows of all parts: the clusters of one policy."""
    parts = list(parts) or [parse([], "")]
    return Samples(
        *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Samples))
    )


def summarise(samples: Samples) -> Summary:
    """Every request counts once: as latency when it succeeded, as failed when not."""
    good, total = samples.latency_ms[samples.ok], len(samples)
    p50, p95, p99 = np.percentile(good, [50, 95, 99]) if len(good) else (np.nan,) * 3
    known = samples.remote[samples.remote != UNKNOWN]
    return Summary(
        requests=total,
        failed=total - len(good),
        mean_ms=float(good.mean()) if len(good) else float("nan"),
        p50_ms=float(p50),
        p95_ms=float(p95),
        p99_ms=float(p99),
        failed_share=(total - len(good)) / total if total else float("nan"),
        remote_share=float((known == REMOTE).mean()) if len(known) else float("nan"),
        unknown_way=total - len(known),
        reasons=dict(Counter(samples.reason[samples.reason != ""].tolist()).most_common()),
    )


def _first(headers: dict, name: str) -> str:
    values = headers.get(name) or [""]
    return values[0]


def _reason(headers: dict, code: int, error: str) -> str:
    """Deepest reason that the answer gives; else the proxy's status or the client's own error."""
    if given := _first(headers, _REASON_HEADER):
        return given.rpartition(": ")[2]
    if code:
        return f"status {code} from a proxy"
    return "client timeout" if "Timeout" in error or "deadline" in error else "no connection or answer"

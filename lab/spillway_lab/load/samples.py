"""What the client saw of each request, in columns, and the summary of it. Pure."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import datetime

import numpy as np

_PATH_HEADER, _REASON_HEADER = "X-Lab-Path", "X-Lab-Reason"
# Where a request was processed, as far as its answer shows.
LOCAL, REMOTE, UNKNOWN = 0, 1, -1


@dataclass(frozen=True)
class Samples:
    """One row per request, in columns of equal length."""

    at_s: np.ndarray  # float, Unix time of sending, by the clock as it was when the load began
    latency_ms: np.ndarray  # float, from sending to the last byte of the answer
    code: np.ndarray  # int, HTTP status; 0: no answer
    remote: np.ndarray  # int, LOCAL, REMOTE or UNKNOWN
    reason: np.ndarray  # str, why a request failed; empty if it succeeded
    kind: np.ndarray  # int, index into the scenario's requests

    @property
    def ok(self) -> np.ndarray:
        """Boolean mask of the requests that succeeded, with status 200 to 399."""
        return (self.code >= 200) & (self.code < 400)

    def __len__(self) -> int:
        return len(self.at_s)


@dataclass(frozen=True)
class Summary:
    """Figures of a set of requests.

    Latencies are those of successful requests, and NaN when there are none. Shares are between 0
    and 1.
    """

    requests: int
    failed: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    failed_share: float
    # share of the requests with a known path that made any hop outside their entry's cluster
    remote_share: float
    unknown_way: int  # requests whose answer does not show where they went
    reasons: dict[str, int]


def parse(
    lines: Iterable[str | bytes], cluster: str, kind: Callable[[str, str], int] = lambda *_: 0
) -> Samples:
    """Parses vegeta's JSON lines of an attack that entered at `cluster`.

    `kind` returns which of the scenario's requests has a method and a URL.
    """
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
                kind(row.get("method", ""), row.get("url", "")),
            )
        )
    at, latency, codes, ways, reasons, kinds = zip(*rows, strict=True) if rows else ((),) * 6
    return Samples(
        np.array(at, float),
        np.array(latency, float),
        np.array(codes, int),
        np.array(ways, int),
        np.array(reasons, str),
        np.array(kinds, int),
    )


def without_warm_up(samples: Samples, seconds: float) -> Samples:
    """Returns the requests that were sent at least `seconds` after the first one."""
    if not len(samples):
        return samples
    return _where(samples, samples.at_s >= samples.at_s.min() + seconds)


def between(samples: Samples, begin_s: float, end_s: float) -> Samples:
    """Returns the requests sent at or after `begin_s`, and before `end_s`, in Unix time."""
    return _where(samples, (samples.at_s >= begin_s) & (samples.at_s < end_s))


def _where(samples: Samples, kept: np.ndarray) -> Samples:
    return Samples(*(getattr(samples, column.name)[kept] for column in fields(samples)))


def way(path: str, cluster: str) -> int:
    """Classifies a path header "service@cluster,..." as LOCAL or REMOTE.

    Returns UNKNOWN for an empty path, and for a truncated path ("+N" at its end) whose remaining
    hops are all local.
    """
    hops = [hop for hop in path.split(",") if hop]
    clusters = {hop.rpartition("@")[2] for hop in hops if "@" in hop}
    if clusters - {cluster}:
        return REMOTE
    return LOCAL if hops and not hops[-1].startswith("+") else UNKNOWN


def concatenate(parts: Iterable[Samples]) -> Samples:
    """Returns all rows of all parts, for example of all clusters under one policy."""
    parts = list(parts) or [parse([], "")]
    return Samples(
        *(np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Samples))
    )


def summarise(samples: Samples) -> Summary:
    """Summarises the requests. Each counts once: by its latency if it succeeded, else as failed."""
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
    """Returns the innermost reason in the answer, else the proxy's status or the client's error."""
    if given := _first(headers, _REASON_HEADER):
        return given.rpartition(": ")[2]
    if code:
        return f"status {code} from a proxy"
    return "client timeout" if "Timeout" in error or "deadline" in error else "no connection or answer"

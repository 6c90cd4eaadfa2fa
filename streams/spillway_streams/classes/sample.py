"""Bounded samples of calls and of the calls that they made, chosen by trace.

The sample of a class is the k rows whose traces have the smallest keys -ln(hash(trace)) / weight.
Every call counts by the number of requests that it stands for. A call and its children are chosen
together. A repeated row changes nothing (Efraimidis and Spirakis 2006; Cohen and Kaplan's
bottom-k).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spillway_streams.batches.arrays import Floats, Hashes, Records

CALL = np.dtype(
    [
        ("key", "f8"),
        ("trace", "u8"),
        ("span", "u8"),
        ("exclusive_ms", "f4"),
        ("in_flight", "f4"),
        ("at", "i8"),
        ("cluster", "i4"),
        ("source_service", "i4"),
        ("source_cluster", "i4"),
        ("request_bytes", "f4"),
        ("response_bytes", "f4"),
        ("status", "i4"),
        ("failed", "?"),
        ("weight", "f4"),
    ]
)
CHILD = np.dtype([("key", "f8"), ("trace", "u8"), ("span", "u8"), ("callee", "i4")])


def hashes(ids: NDArray[Any]) -> Hashes:
    """Hashes hex ids (object or bytes) to well-mixed uint64, identical in every process."""
    raw = np.ascontiguousarray(np.asarray(ids).astype("S32"))
    words = raw.view("<u8").reshape(len(raw), 4)
    mixed = np.zeros(len(raw), "u8")
    for i in range(4):
        mixed = _mix(mixed ^ words[:, i])
    return mixed


def _mix(x: Hashes) -> Hashes:
    """The finaliser of SplitMix64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keys(traces: Hashes, weights: Floats) -> Floats:
    """Returns the sort key of each row. Rows with the smallest keys are chosen."""
    uniform = (traces >> np.uint64(11)).astype("f8") * 2.0**-53 + 2.0**-54
    return -np.log(uniform) / np.maximum(weights, 1e-9)


class BottomK:
    """The rows with the smallest keys: whole traces, at most k rows."""

    def __init__(self, dtype: np.dtype[np.void], k: int) -> None:
        self._k = k
        self._rows = np.empty(0, dtype)
        self._new: list[Records] = []
        self._waiting = 0
        self._threshold = np.inf

    def offer(self, rows: Records) -> None:
        """Adds the rows whose keys are small enough."""
        chosen = rows[rows["key"] < self._threshold]
        if len(chosen):
            self._new.append(chosen)
            self._waiting += len(chosen)
            if self._waiting > self._k:
                self._settle()

    def rows(self) -> Records:
        """Returns the sample ordered by key, with each span once."""
        self._settle()
        return self._rows

    @property
    def threshold(self) -> float:
        """Smallest key that is not in the sample; infinite while all rows are."""
        self._settle()
        return self._threshold

    @property
    def limit(self) -> float:
        """Rows with greater keys are rejected at once. Not below the threshold."""
        return self._threshold

    def narrow(self, k: int) -> None:
        """Reduces the sample to at most k rows from now on."""
        if k < self._k:
            self._k = k
            self._settle()

    def _settle(self) -> None:
        if not self._new and len(self._rows) <= self._k:
            return
        merged = np.concatenate([self._rows, *self._new])
        self._new, self._waiting = [], 0
        _, first = np.unique(merged["span"], return_index=True)
        merged = merged[first]
        merged = merged[np.argsort(merged["key"], kind="stable")]
        if len(merged) > self._k:
            self._threshold = float(merged["key"][self._k])
            whole = merged[merged["key"] < self._threshold]
            # One trace with more than k rows fills the sample alone.
            merged = whole if len(whole) else merged[: self._k]
        self._rows = merged


def weights(rows: Records, threshold: float) -> Floats:
    """Returns how many requests each sampled call stands for (Horvitz and Thompson)."""
    weight = rows["weight"].astype("f8")
    return weight if np.isinf(threshold) else weight / -np.expm1(-weight * threshold)


def effective(weight: Floats) -> float:
    """Returns Kish's effective number of samples."""
    square = float((weight * weight).sum())
    return float(weight.sum()) ** 2 / square if square else 0.0

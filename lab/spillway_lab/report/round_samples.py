"""What the client saw of each request of a round, in columns, and its `.npz` file."""

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from spillway_lab.scenario.errors import InvalidInput

# What numpy and zipfile raise for files that are no archives of arrays, or damaged ones.
_NOT_ARRAYS = (
    BadZipFile, zlib.error, ValueError, EOFError, TypeError, RuntimeError, OverflowError, MemoryError,
    KeyError, SyntaxError,
)  # fmt: skip
_TYPES = {"at_s": np.float32, "latency_ms": np.float32, "ok": np.bool_, "cluster": np.uint8, "kind": np.uint8}


@dataclass(frozen=True)
class RoundSamples:
    """One row per request, in columns of equal length. Times are those of the scenario."""

    at_s: np.ndarray  # float32, seconds from the begin of the measured part to sending
    latency_ms: np.ndarray  # float32; a failed request has the client's timeout
    ok: np.ndarray  # bool
    cluster: np.ndarray  # uint8, where it entered: index into the run's clusters
    kind: np.ndarray  # uint8, what was asked: index into the run's requests

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def failed(self) -> int:
        """The number of requests that failed."""
        return int(np.count_nonzero(~self.ok.astype(bool)))

    def since(self, begin_s: float) -> "RoundSamples":
        """Returns the requests that were sent from then on, with times since then."""
        kept = self.at_s >= begin_s
        rows = {column.name: getattr(self, column.name)[kept] for column in fields(self)}
        return RoundSamples(**rows | {"at_s": rows["at_s"] - np.float32(begin_s)})


def packed(path: Path, samples: RoundSamples, clusters: int, kinds: int) -> bytes:
    """Returns the content of the `.npz` file at `path`.

    `clusters` and `kinds` are how many the run names. Raises InvalidInput that names the file and
    the column.
    """
    columns = {name: np.asarray(getattr(samples, name)) for name in _TYPES}
    _check(path, columns, clusters, kinds)
    typed: dict[str, Any] = {name: columns[name].astype(kind) for name, kind in _TYPES.items()}
    content = io.BytesIO()
    np.savez_compressed(content, **typed)
    return content.getvalue()


def read_samples(path: Path, clusters: int, kinds: int) -> RoundSamples:
    """Reads the columns of one round. Raises InvalidInput that names the file and the column."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            columns = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise InvalidInput([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except _NOT_ARRAYS as error:
        raise InvalidInput([f"{path}: is no .npz file of numpy: {error}"]) from error
    _check(path, columns, clusters, kinds)
    return RoundSamples(**{column.name: columns[column.name] for column in fields(RoundSamples)})


def _check(path: Path, columns: dict[str, np.ndarray], clusters: int, kinds: int) -> None:
    if problems := [f"{path}: {problem}" for problem in _problems(columns, clusters, kinds)]:
        raise InvalidInput(problems)


def _problems(columns: dict[str, np.ndarray], clusters: int, kinds: int) -> Iterator[str]:
    if set(columns) != set(_TYPES):
        yield f"columns {', '.join(sorted(columns))}; must be {', '.join(_TYPES)}"
        return
    rows = columns["at_s"].shape
    for name, column in columns.items():
        if column.ndim != 1 or column.shape != rows:
            yield f"{name}: shape {column.shape}; must be one row per request, as at_s with {rows}"
            return
        if not np.can_cast(column.dtype, np.float64, "same_kind") or (
            name == "ok" and column.dtype != np.bool_
        ):
            yield f"{name}: type {column.dtype}; must be {np.dtype(_TYPES[name])}"
            return
    for name in ("at_s", "latency_ms"):
        if not np.isfinite(column := columns[name]).all() or (column < 0).any():
            yield f"{name}: has values that are not finite or below 0; allowed: 0 and more"
    for name, limit in (("cluster", clusters), ("kind", kinds)):
        if ((column := columns[name]) < 0).any() or (column >= limit).any():
            yield f"{name}: has values outside 0 to {limit - 1}; the run names {limit}"

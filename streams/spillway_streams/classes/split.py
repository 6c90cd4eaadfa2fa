"""Which attribute of a call best separates two modes."""

from dataclasses import dataclass
from typing import overload

import numpy as np

from spillway_streams.batches.arrays import Bools, Floats, Ints
from spillway_streams.classes.options import Options

_MAX_VALUES = 50  # of a named attribute; rarer values count together
_MAX_THRESHOLDS = 64


@dataclass(frozen=True)
class Split:
    attribute: str = ""
    value: str = ""
    explained: float = 0.0  # share of the modes' entropy


def best(
    high: Bools,
    named: dict[str, Ints],
    numeric: dict[str, Floats],
    names: list[str],
    options: Options,
) -> Split:
    """Finds the best attribute.

    `high`: whether each call is of the slow mode, bool (n,); `named`: attribute -> codes (n,),
    which index into `names`; `numeric`: attribute -> float64 (n,).
    """
    whole = _entropy(high.mean()) if len(high) else 0.0
    if not whole:
        return Split()
    candidates = [_by_name(attribute, codes, high, names) for attribute, codes in named.items()]
    candidates += [_by_size(attribute, values, high) for attribute, values in numeric.items()]
    information, attribute, value = max(candidates, key=lambda candidate: candidate[0], default=(0.0, "", ""))
    explained = min(max(information / whole, 0.0), 1.0)
    return (
        Split(attribute, value, explained) if explained >= options.min_explained else Split("", "", explained)
    )


@overload
def _entropy(p: float) -> float: ...
@overload
def _entropy(p: Floats) -> Floats: ...
def _entropy(p: Floats | float) -> Floats | float:
    """Returns the entropy of a coin, in bits."""
    q = np.clip(p, 1e-12, 1 - 1e-12)
    bits = -(q * np.log2(q) + (1 - q) * np.log2(1 - q))
    return float(bits) if np.ndim(bits) == 0 else bits


def _by_name(attribute: str, codes: Ints, high: Bools, names: list[str]) -> tuple[float, str, str]:
    """Returns mutual information, less the part by chance (Miller and Madow), attribute and value.

    The value is the one that contributes most to the slow mode.
    """
    values, index, count = np.unique(codes, return_inverse=True, return_counts=True)
    if len(values) > _MAX_VALUES:
        rare = np.argsort(count)[:-_MAX_VALUES]
        index = np.where(np.isin(index, rare), rare[0], index)
        count = np.bincount(index, minlength=len(values))
    share = np.bincount(index, weights=high, minlength=len(values)) / np.maximum(count, 1)
    n, used = len(high), int((count > 0).sum())
    information = _entropy(high.mean()) - float((count / n * _entropy(share)).sum())
    information -= (used - 1) / (2 * n * np.log(2))
    slow = int(np.argmax(count * (share - high.mean())))
    return float(information), attribute, names[int(values[slow])]


def _by_size(attribute: str, values: Floats, high: Bools) -> tuple[float, str, str]:
    """Returns the best of several thresholds.

    The information is reduced by the bits that a choice among so many gains by chance.
    """
    thresholds = np.unique(np.quantile(values, np.linspace(0, 1, _MAX_THRESHOLDS + 1)[1:-1], method="lower"))
    n, most = len(high), (0.0, attribute, "")
    for threshold in thresholds:
        below = values <= threshold
        k = int(below.sum())
        if not 0 < k < n:
            continue
        conditional = k / n * _entropy(high[below].mean()) + (n - k) / n * _entropy(high[~below].mean())
        information = _entropy(high.mean()) - conditional - np.log(len(thresholds) + 1) / (n * np.log(2))
        if information > most[0]:
            most = (float(information), attribute, f"<= {threshold:g}")
    return most

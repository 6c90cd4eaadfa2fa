"""Exponentially weighted moving averages of samples at irregular times (L3, equations 1 and 2).

An average begins at a default, not at its first sample: a destination that was never measured
counts as the default, and the first sample moves it only as far as its time allows. Pure.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

_LN2 = math.log(2)
_POLL_S = 5.0  # between two polls of the authors' code, which `drift` is for


@dataclass(frozen=True)
class Ewma:
    """An average that halves its distance to a constant sample in `half_life_s`.

    `peak`: a sample above the average replaces it (PeakEWMA). `drift`: how far five seconds without
    data move the average back towards `initial`, in its unit.
    """

    initial: float
    half_life_s: float
    drift: float = 0.0
    peak: bool = False
    value: float = math.nan  # NaN: no sample yet

    @property
    def now(self) -> float:
        return self.initial if math.isnan(self.value) else self.value

    def after(self, sample: float, seconds: float) -> Self:
        """Returns the average after a sample, `seconds` after the one before."""
        if self.peak and sample > self.now:
            return replace(self, value=sample)
        kept = math.exp(-max(seconds, 0.0) * _LN2 / self.half_life_s)
        return replace(self, value=sample * (1 - kept) + self.now * kept)

    def without_data(self, seconds: float) -> Self:
        """Returns the average after `seconds` without data: a step back towards `initial`."""
        distance, step = self.initial - self.now, self.drift * max(seconds, 0.0) / _POLL_S
        if abs(distance) <= step:
            return replace(self, value=self.initial)
        return replace(self, value=self.now + math.copysign(step, distance))

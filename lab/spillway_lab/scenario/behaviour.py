"""What an endpoint does beside its service time: caches, contention, errors; and users' keys.

The emulator checks the same keys in the same words (`lab/emulator/validate_behaviour.go`). The file
`lab/tests/data/application_mistakes.yaml` holds both to that.
"""

import itertools
import math
from typing import Annotated, Literal

from pydantic import Field, model_validator

from spillway_lab.scenario.base import Model, Positive, above_zero, one_of, within

Share = Annotated[float, within(0, 1)]
MOST_KEYS = 1_000_000


class ServiceTime(Model):
    distribution: Literal["exponential", "lognormal", "constant"]
    mean_ms: Positive
    cv: Positive | None = None

    @property
    def cv2(self) -> float:
        """The squared coefficient of variation."""
        known = {"constant": 0.0, "exponential": 1.0}
        return known.get(self.distribution, (self.cv or 0.0) ** 2)


class Cache(Model):
    """A least-recently-used cache of one endpoint, in each pod for itself.

    A request with a cached key holds its worker for `hit` only and makes no calls. Any other
    request does everything that the endpoint says, and then its key is in the cache.
    """

    key: str  # the variable of the endpoint's path whose value is the key
    capacity: Annotated[int, within(1, MOST_KEYS)]  # keys
    hit: ServiceTime | None = None  # None: no time


class Contention(Model):
    """Another endpoint of the same service that makes this one slower (SLATE Fig. 16).

    The service time is multiplied by 1 + sum of rate / doubles_at_rps over all entries. A rate is
    what one pod serves of the other endpoint, averaged with an exponential window.
    """

    method: str
    path: str
    doubles_at_rps: Annotated[float, above_zero()]
    window_ms: Annotated[float, above_zero()] = 1000.0  # time constant of the average

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.path}"


class KeyRange(Model):
    """The keys first, first + 1, ..., first + count - 1."""

    first: Annotated[int, within(0, 1_000_000_000)] = 0
    count: Annotated[int, within(1, MOST_KEYS)]


class Popularity(Model):
    """How often users ask for each key of a range.

    With `zipf`, key number r of the range (from 1) is asked for in proportion to r ** -exponent.
    """

    distribution: Annotated[str, one_of("uniform", "zipf")] = "uniform"
    exponent: Annotated[float, above_zero()] | None = None

    @model_validator(mode="after")
    def _exponent_of_zipf(self) -> "Popularity":
        if self.distribution == "zipf" and self.exponent is None:
            raise ValueError("exponent: not set; allowed: a number above 0")
        if self.distribution != "zipf" and self.exponent is not None:
            raise ValueError(f"exponent: {self.exponent:.15g}; allowed: only with distribution zipf")
        return self


class Keys(KeyRange):
    """The values that users put into a path variable: a range of keys, in each cluster the same
    unless `clusters` has another range (SLATE section 5.3.2)."""

    popularity: Popularity = Popularity()
    clusters: dict[str, KeyRange] = Field(default_factory=dict)

    def of(self, cluster: str) -> KeyRange:
        """Returns the range that the users of a cluster ask for."""
        return self.clusters.get(cluster, self)

    def cumulative(self, cluster: str) -> list[float]:
        """Returns the cumulative weights of a cluster's keys, in the order of the range."""
        count, exponent = self.of(cluster).count, self.popularity.exponent or 0.0
        return list(itertools.accumulate(math.pow(rank, -exponent) for rank in range(1, count + 1)))

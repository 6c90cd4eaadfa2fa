"""Which applications have fallen back to a policy without a model, and when they return. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from spillway_optimizer.model.model import ApplicationModel, Model

# An application returns when its least certain prediction is so much better than the limit.
_RETURNS_BELOW = 0.8


class _Every:
    """Contains every name."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY = _Every()


@dataclass(frozen=True)
class Fallback:
    """Applications that follow `policy`, because curves or capacities are missing or uncertain.

    Empty `policy`: none ever does. `returns_after`: so many solves in a row must have found curves
    and capacities again. `most_error`: limit of a predicted time's standard error, relative to it.
    """

    policy: str
    returns_after: int
    most_error: float = math.inf
    sound: Mapping[str, int] = field(default_factory=dict)  # such solves so far, by application

    @property
    def applications(self) -> frozenset[str]:
        return frozenset(self.sound)

    def of(self, application: str) -> str:
        """Returns the policy that the application follows; empty if it has not fallen back."""
        return self.policy if application in self.sound else ""

    def after(self, model: Model) -> Self:
        """Returns the state after one more model, which these applications had a problem of.

        What the model says nothing about, because it has no requests, stays as it is.
        """
        if not self.policy:
            return self
        modelled = {application.name for application in model.applications}
        found = {name: count for name, count in self.sound.items() if name not in modelled}
        for application in model.applications:
            name = application.name
            if name not in self.sound:
                if application.no_model or application.doubt.error > self.most_error:
                    found[name] = 0
                continue
            count = self.sound[name] + 1 if self._is_sound(application) else 0
            if count < self.returns_after:
                found[name] = count
        return replace(self, sound=found)

    def _is_sound(self, application: ApplicationModel) -> bool:
        problem, error = application.problem, application.doubt.error
        return problem is not None and not problem.unmodelled and error <= _RETURNS_BELOW * self.most_error

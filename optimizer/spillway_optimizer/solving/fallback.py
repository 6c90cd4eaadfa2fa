"""Which applications have fallen back to a policy without a model, and when they return. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from spillway_optimizer.model.model import Model


class _Every:
    """Contains every name."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY = _Every()


@dataclass(frozen=True)
class Fallback:
    """Applications that follow `policy`, because their curves or capacities are missing.

    Empty `policy`: none ever does. `returns_after`: so many solves in a row must have found curves
    and capacities again.
    """

    policy: str
    returns_after: int
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
            name, problem = application.name, application.problem
            if name not in self.sound:
                if application.no_model:
                    found[name] = 0
                continue
            count = self.sound[name] + 1 if problem is not None and not problem.unmodelled else 0
            if count < self.returns_after:
                found[name] = count
        return replace(self, sound=found)

"""When rules are decided in a round, and by whom.

The running optimizer looks every second. A baseline is planned anew when demand or failures have
changed by more than chance explains.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from spillway_lab.scenario.scenario import Scenario
from spillway_lab.scenario.variants import VARIANTS, Variant
from spillway_lab.simulator import known_model, stepped
from spillway_lab.simulator.answered import RouteBoards
from spillway_lab.simulator.engine import Answers
from spillway_lab.simulator.indices import Weights
from spillway_lab.simulator.learned import Learned
from spillway_lab.simulator.observed import Boards, Period
from spillway_lab.simulator.planner import PLANNED, Planner
from spillway_lab.simulator.stepped import STEPPED, Stepped
from spillway_lab.simulator.world import World

SIMULATED = (*PLANNED, *STEPPED)
# What changes less needs no new rules: demand relative to itself, and the share of failures.
_SAME, _SAME_FAILED = 0.02, 0.005
# Standard deviations of a difference. There are many classes and looks, so three would be exceeded
# by chance about once in a round.
_NOISE = 4.0


class Control(Protocol):
    """Decides the rules of one round."""

    @property
    def period_s(self) -> float:
        """Seconds between two looks."""

    @property
    def plans(self) -> int:
        """How often rules were planned so far."""

    @property
    def papa(self) -> Counter[str]:
        """PAPA's steps so far, by their outcome."""

    watches: bool  # whether it looks at how calls end

    def rules(self, seen: Period, answers: Sequence[Answers], now_s: float, changed: bool) -> Weights | None:
        """Returns the rules from second `now_s` on, None if they stay.

        `seen` and `answers` end then, and `changed` says that an event has happened since.
        """


@contextmanager
def of(scenario: Scenario, policy: str, world: World, folder: Path) -> Iterator[Control]:
    """Yields the control of a simulated policy. `folder` gets the files of its processes."""
    if policy in PLANNED:
        yield Planned(Planner(scenario, folder), policy, world)
        return
    with Stepped(stepped.command(scenario, policy, folder), folder / "steps.log") as steps:
        yield Running(steps, world, VARIANTS[policy])


class Running:
    """The running optimizer and PAPA. With frozen curves, capacities never change either."""

    period_s = 1.0

    def __init__(self, steps: Stepped, world: World, variant: Variant) -> None:
        self._steps, self._world, self.watches = steps, world, variant.by_answers
        self._learned, self._boards = Learned(world, variant.frozen_curves), Boards(world.indices)
        self._routes = RouteBoards(world.indices)

    @property
    def plans(self) -> int:
        return self._steps.solves

    @property
    def papa(self) -> Counter[str]:
        return self._steps.papa

    def rules(self, seen: Period, answers: Sequence[Answers], now_s: float, changed: bool) -> Weights | None:
        at, known = known_model.BEGAN + now_s, self._learned.after(seen, changed)
        boards = self._boards.add(seen, at)
        if self.watches:
            boards["outcomes"] = self._routes.add(seen.seconds, answers, at)
        return self._steps.rules(at, known_model.document(known, boards, self._world, now_s))


@dataclass
class Planned:
    """A baseline, whose plan is in force at once."""

    planner: Planner
    policy: str
    world: World
    plans: int = 0
    papa: Counter[str] = field(default_factory=Counter)  # it has none
    period_s = 10.0
    watches = False

    def __post_init__(self) -> None:
        self._learned, self._boards = Learned(self.world), Boards(self.world.indices)
        self._last: Seen | None = None

    def rules(self, seen: Period, answers: Sequence[Answers], now_s: float, changed: bool) -> Weights | None:
        boards, now = self._boards.add(seen, known_model.BEGAN + now_s), Seen.of(seen)
        known = self._learned.after(seen, changed)
        if not now.demand.any():
            return None
        if self._last is not None and not changed and now.resembles(self._last):
            return None
        self._last, self.plans = now, self.plans + 1
        return self.planner.rules(self.policy, known_model.document(known, boards, self.world, now_s))


@dataclass(frozen=True)
class Seen:
    """What was seen at one look, and what chance makes of it.

    The last rules stay while neither demand nor failures have changed. An overloaded service is
    avoided while its requests fail, so rules from that time must not stay when it has recovered.
    """

    demand: np.ndarray  # [class, cluster] of users, per second
    demand_noise: np.ndarray  # standard deviation
    failed: np.ndarray  # [class, cluster] share of the served and refused
    failed_noise: np.ndarray

    @classmethod
    def of(cls, seen: Period) -> "Seen":
        arrived = np.maximum(seen.arrived, 1)
        failed = np.minimum(seen.failed / arrived, 1.0)
        return cls(
            seen.asked / seen.seconds, np.sqrt(seen.asked) / seen.seconds,
            failed, np.sqrt(failed * (1 - failed) / arrived),
        )  # fmt: skip

    def resembles(self, other: "Seen") -> bool:
        demand = _NOISE * np.hypot(self.demand_noise, other.demand_noise)
        failed = _NOISE * np.hypot(self.failed_noise, other.failed_noise)
        return bool(
            (abs(self.demand - other.demand) <= np.maximum(_SAME * other.demand, demand)).all()
            and (abs(self.failed - other.failed) <= np.maximum(_SAME_FAILED, failed)).all()
        )

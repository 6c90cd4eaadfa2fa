"""What is known of the mesh from run to run: demand, failures, and what telemetry lacks. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from spillway_optimizer.callers.averages import Averages, Route
from spillway_optimizer.inputs.in_flight import measured
from spillway_optimizer.inputs.scale_outs import Place, ScaleOuts
from spillway_optimizer.inputs.smoothing import Rates, smooth
from spillway_optimizer.inputs.telemetry import Telemetry, rates
from spillway_optimizer.inputs.unknown import LastKnown, Unknown, of, unknowns
from spillway_optimizer.model.failures import Successes
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.triggers import BOARD_WINDOW_S, jumps


def _unseen(unknown: Unknown, route: Route) -> bool:
    """Whether telemetry of the service that makes these calls is missing."""
    cluster, service, _ = route
    return cluster in unknown.clusters or (service, cluster) in unknown.services


def _unseen_while_called(unknown: Unknown, telemetry: Telemetry, route: Route) -> bool:
    """Whether a route without outcomes may have calls, when no route has outcomes."""
    boards = telemetry.load.values()
    called = any(route[2] in board and board[route[2]].rps > 0 for board in boards)
    return called or _unseen(unknown, route)


@dataclass(frozen=True)
class Observations:
    """The state after the readings so far.

    `demand`: smoothed, in requests per second. `at`: Unix seconds of the last reading, None before
    the first one.
    """

    last_known: LastKnown = field(default_factory=LastKnown)
    demand: Rates = field(default_factory=dict)
    unknown: Unknown = field(default_factory=Unknown)
    successes: Successes = field(default_factory=Successes)
    at: float | None = None
    callers: Averages = field(default_factory=Averages)
    scale_outs: ScaleOuts = field(default_factory=ScaleOuts)
    jumped: Mapping[tuple[str, str], float] = field(default_factory=dict)  # lately, Unix seconds

    def jumped_before_s(self) -> Mapping[tuple[str, str], float]:
        """Returns how long before the last reading rates had jumped, in seconds."""
        return {key: (self.at or at) - at for key, at in self.jumped.items()}

    def forgotten(self) -> "Observations":
        """Returns the state of a new leader, which keeps only what was known last."""
        return Observations(self.last_known)

    def completed(self, telemetry: Telemetry, now: float) -> tuple["Observations", Telemetry]:
        """Remembers a reading. Returns the state, and the reading with what was known last."""
        last_known = self.last_known.after(telemetry, now)
        return replace(self, last_known=last_known), last_known.completed(telemetry)

    def after(
        self, telemetry: Telemetry, clusters: Collection[str], now: float, settings: OptimizerTuning
    ) -> "Observations":
        """Returns the state after one more completed reading, at Unix second `now`.

        A jump of demand is not noise, so it is not averaged. Demand that is unknown keeps its last
        known value.
        """
        unknown = unknowns(telemetry, tuple(clusters), now, settings.board_max_age_s)
        held = {key: rps for key, rps in self.demand.items() if of(unknown, key)}
        observed = {**rates(telemetry.demand), **held}
        half_life_s, change = settings.demand_half_life_s, settings.load_change
        lately = {key: at for key, at in self.jumped.items() if 0 <= now - at <= BOARD_WINDOW_S}
        if self.at is None:
            demand = smooth(None, observed, 0.0, half_life_s)
        else:
            jumped = jumps(self.demand, observed, change, lately)
            demand = smooth(self.demand, observed, now - self.at, half_life_s, jumped)
            lately |= dict.fromkeys(jumps(self.demand, observed, change), now)
        successes = self.successes.after(telemetry, unknown, now)
        callers = self._heard(telemetry, unknown, now)
        return Observations(
            self.last_known, demand, unknown, successes, now, callers, self.scale_outs, lately
        )

    def _heard(self, telemetry: Telemetry, unknown: Unknown, now: float) -> Averages:
        """Returns the callers' averages after the reading.

        Without outcomes of any route, those that have no calls are silent for as long as has
        passed.
        """
        outcomes = measured(telemetry.outcomes, self.callers.routes, telemetry.in_flight)
        if telemetry.outcomes_at is not None:
            return self.callers.after(outcomes, telemetry.outcomes_at, partial(_unseen, unknown))
        if self.callers.at is None or self.at is None:
            return self.callers
        at = self.callers.at + max(now - self.at, 0.0)
        return self.callers.after(outcomes, at, partial(_unseen_while_called, unknown, telemetry))

    def scaling(
        self, expected: Collection[Place], telemetry: Telemetry, now: float, settings: OptimizerTuning
    ) -> "Observations":
        """Returns the state after a model: `expected` is where an autoscaler should add a pod."""
        found = self.scale_outs.after(expected, telemetry.pods, now, settings.pod_wait_s)
        return replace(self, scale_outs=found)

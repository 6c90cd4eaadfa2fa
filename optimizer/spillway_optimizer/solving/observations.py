"""What is known of the mesh from run to run: demand, failures, and what telemetry lacks. Pure."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from spillway_optimizer.inputs.smoothing import Rates, smooth
from spillway_optimizer.inputs.telemetry import Telemetry, rates
from spillway_optimizer.inputs.unknown import LastKnown, Unknown, of, unknowns
from spillway_optimizer.model.failures import Successes
from spillway_optimizer.solving.config import OptimizerTuning
from spillway_optimizer.solving.triggers import jumps


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
        half_life_s = settings.demand_half_life_s
        if self.at is None:
            demand = smooth(None, observed, 0.0, half_life_s)
        else:
            jumped = jumps(self.demand, observed, settings.load_change)
            demand = smooth(self.demand, observed, now - self.at, half_life_s, jumped)
        successes = self.successes.after(telemetry, unknown, now)
        return Observations(self.last_known, demand, unknown, successes, now)

"""The data that every kind of source provides to `plan` and `explain`."""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.problem.rules import Rules


@dataclass(frozen=True)
class SourceData:
    """The data of one source.

    `now`: the time at which telemetry is judged, Unix seconds. `in_force` None: no rules are known.
    """

    source: str
    telemetry: Telemetry
    topology: Topology
    now: float
    in_force: Rules | None = None
    in_force_from: str = ""  # description of where these rules come from
    notes: tuple[str, ...] = ()
    # Demand by (cluster, entry class) if a what-if changes it. None: as on the boards.
    demand_rps: Mapping[tuple[str, str], float] | None = None
    guardrails: Guardrails = Guardrails()

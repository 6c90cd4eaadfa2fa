"""The data that every kind of source provides to `plan` and `explain`."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.problem.rules import Rules


@dataclass(frozen=True)
class Told:
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


def unknown(key: str, value: str, known: Iterable[str]) -> str:
    """Returns a message about an unknown name.

    It lists the closest known names, then all of them, or the first 20 and the number of the rest.
    """
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.5)
    close += [name for name in names if value in name and name not in close][:3]
    hint = f"; closest: {', '.join(close[:3])}" if close else ""
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"{key}: unknown {value!r}{hint}; known: {shown or 'none'}"

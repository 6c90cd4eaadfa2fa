"""What a source of `plan` and `explain` tells, whatever kind of source it is."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import Guardrails

from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.problem.rules import Rules


@dataclass(frozen=True)
class Told:
    """`now` is the time that telemetry is judged as of, Unix seconds; `in_force` None: no rules are known."""

    source: str
    telemetry: Telemetry
    topology: Topology
    now: float
    in_force: Rules | None = None
    in_force_from: str = ""  # where these rules come from, in words
    notes: tuple[str, ...] = ()
    # By (cluster, entry class), where it is not as the boards say: a what-if.
    demand_rps: Mapping[tuple[str, str], float] | None = None
    guardrails: Guardrails = Guardrails()


def unknown(key: str, value: str, known: Iterable[str]) -> str:
    """A sentence on a name that does not exist: the closest ones, then all (or how many) there are."""
    names = sorted(known)
    close = difflib.get_close_matches(value, names, n=3, cutoff=0.5)
    close += [name for name in names if value in name and name not in close][:3]
    hint = f"; closest: {', '.join(close[:3])}" if close else ""
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"{key}: unknown {value!r}{hint}; known: {shown or 'none'}"

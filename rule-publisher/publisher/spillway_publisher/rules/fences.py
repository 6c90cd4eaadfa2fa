"""Fencing tokens: which are plausible, which count, and how an operator resets them. Pure.

A token is Redis's clock in microseconds at the time when a leader took its lease. A token far ahead
of the clock would lock out every later leader, so it is refused and never remembered.
"""

from collections.abc import Mapping

from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import names
from spillway_contracts.guardrails import Guardrails

from spillway_publisher.rules import denials


def largest(now_ns: int) -> int:
    """Returns the largest token that is accepted now."""
    return now_ns // 1000 + names.VALUE_FENCING_TOKEN_AHEAD_US


def plausible(token: int, now_ns: int) -> bool:
    return token <= largest(now_ns)


class Fences:
    """The newest plausible token of each origin, from published versions in ascending order."""

    def __init__(self) -> None:
        self._newest: dict[Origin, int] = {}
        self._reset_in: dict[Origin, int] = {}  # origin -> version of its last reset
        self._read_to = 0

    def read(self, ruleset: Ruleset, now_ns: int) -> None:
        """Takes the token and the resets of a published version. Ignores versions read before."""
        if ruleset.version <= self._read_to:
            return
        self._read_to = ruleset.version
        for origin in ruleset.reset_fences:
            self._newest.pop(origin, None)
            self._reset_in[origin] = ruleset.version
        if plausible(ruleset.fencing_token, now_ns):
            newest = self._newest.get(ruleset.origin, 0)
            self._newest[ruleset.origin] = max(newest, ruleset.fencing_token)

    def newest(self) -> dict[Origin, int]:
        return dict(self._newest)

    def reset_in(self, origin: Origin) -> int:
        """Returns the version of the origin's last reset; 0 when none is known."""
        return self._reset_in.get(origin, 0)


def reset_problem(proposal: Ruleset) -> str | None:
    """Returns why the proposal's reset of fencing tokens is impossible, or None."""
    known = [value for value in Origin.values() if value]
    wrong = [origin for origin in proposal.reset_fences if origin not in known]
    if not wrong:
        return None
    allowed = ", ".join(Origin.Name(value) for value in known)
    return f"reset_fences: {wrong[0]}; must be among {allowed}"


def reset(
    proposal: Ruleset,
    in_force: Mapping[str, Ruleset],
    policy: Guardrails,
    topology: Topology,
    now_ns: int,
) -> Ruleset:
    """Returns the rulesets in force, with the id, reason and reset of the operator's proposal.

    Routing does not change: expired rules get the weights by which relays hold them.
    """
    whole = denials.renewed(in_force, policy, topology, now_ns)
    whole.id, whole.reason = proposal.id, proposal.reason
    whole.reset_fences.extend(proposal.reset_fences)
    whole.ClearField("fencing_token")
    return whole

"""Detects rules that relays serve but Redis does not have, because it lost its data. Pure."""

from collections.abc import Mapping

from spillway_optimizer import OptimizerError
from spillway_optimizer.inputs.in_force import InForce

# The publisher writes the rules in force to Redis again every few seconds. If they are still
# missing after this time, the publisher does not have them either.
PATIENCE_S = 30.0


class UnknownRulesError(OptimizerError):
    """The rules in force are not known now."""


class LostRules:
    """Tracks whether Redis has lost rulesets.

    `version`: the base version of proposals while Redis has no ruleset. It is the lowest version
    that relays report, and 0 while they serve none, which means that nothing is in force.
    """

    def __init__(self) -> None:
        self.version = 0
        self._since: float | None = None
        self._seen: dict[str, int] = {}  # versions that Redis had, by cluster

    def check(self, in_force: InForce | None, serving: Mapping[str, int], now: float) -> None:
        """Checks the rules in force against the versions that relays report.

        `serving`: these versions, by cluster. The reports may be lost too, so versions that Redis
        had earlier are also expected. Raises UnknownRulesError while the publisher may still write
        the rules again. A proposal made without them would undo changes by others.
        """
        self.version = 0 if in_force is not None else min(serving.values(), default=0)
        known = in_force.versions if in_force is not None else {}
        expected = {**self._seen, **{c: version for c, version in serving.items() if version}}
        lost = sorted(expected.keys() - known.keys())
        if not lost:
            self._since, self._seen = None, dict(known)
            return
        if self._since is None or now < self._since:
            self._since = now
        if now - self._since < PATIENCE_S:
            raise UnknownRulesError(
                f"in force: Redis has no ruleset of {', '.join(lost)}, where version {min(expected[c] for c in lost)} is in "
                f"force; waiting up to {PATIENCE_S:.0f} s for the publisher to write it again"
            )
        self._seen = dict(known)

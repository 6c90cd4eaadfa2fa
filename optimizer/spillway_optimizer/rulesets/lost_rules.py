"""Rules that relays serve, and that Redis does not have: it has lost its data. Pure."""

from collections.abc import Mapping

from spillway_optimizer import OptimizerError
from spillway_optimizer.inputs.in_force import InForce

# The publisher writes what is in force again every few seconds. Longer than that: it does not have it either.
PATIENCE_S = 30.0


class UnknownRulesError(OptimizerError):
    """What is in force is not known now."""


class LostRules:
    """`version`: what a proposal starts from while Redis has no ruleset. It is the lowest that relays report, and 0 while
    they serve none: nothing is in force then."""

    def __init__(self) -> None:
        self.version = 0
        self._since: float | None = None
        self._seen: dict[str, int] = {}  # versions that Redis had, by cluster

    def check(self, in_force: InForce | None, serving: Mapping[str, int], now: float) -> None:
        """`serving`: versions by cluster, as relays report them; that may be lost, too. Raises UnknownRulesError while the
        publisher may still write the rules again: what is made without them would undo what others have changed."""
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

"""What Envoys answered: the version that each has in force, and who refused one. Pure.

Relays acknowledge each version for each of their Envoys, also when it changes nothing there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.acknowledgement_pb2 import OUTCOME_ACK, OUTCOME_NACK, Acknowledgement

# Routes reach an Envoy last: with them, everything of their version is in force.
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
# Most Envoys that are remembered although no relay names them any more
_GONE = 10_000


@dataclass(frozen=True)
class Refusal:
    """A version that an Envoy, or a relay itself, has refused."""

    cluster: str
    envoy: str
    version: int
    detail: str


class Answers:
    """The newest answers, by cluster and Envoy. Heartbeats name Envoys by their hashes alone."""

    def __init__(self) -> None:
        # (cluster, hash) -> version in force, and when it was acknowledged in Unix nanoseconds
        self._in_force: dict[tuple[str, int], tuple[int, int]] = {}
        # (cluster, Envoy, type) -> version and time of the newest answer, and the refusal if it is
        # one. An Envoy may take later what it refused at first: its relay sends it again.
        self._newest: dict[tuple[str, str, str], tuple[int, int, Refusal | None]] = {}

    def take(self, answer: Acknowledgement) -> None:
        """Takes an acknowledgement. Answers may come repeatedly and in any order."""
        if answer.outcome not in (OUTCOME_ACK, OUTCOME_NACK):
            return
        version, at_ns = answer.ruleset_version, answer.at.ToNanoseconds()
        refused = answer.outcome == OUTCOME_NACK
        refusal = Refusal(answer.cluster, answer.envoy, version, answer.detail) if refused else None
        key = answer.cluster, answer.envoy, answer.type_url
        if (version, at_ns) >= self._newest.get(key, (0, 0, None))[:2]:
            self._newest[key] = version, at_ns, refusal
        if not refused and answer.type_url == ROUTES:
            held = answer.cluster, fnv1a(answer.envoy)
            if version > self._in_force.get(held, (0, 0))[0]:
                self._in_force[held] = version, at_ns

    def since(self, version: int, connected: Mapping[str, frozenset[int]]) -> int | None:
        """Returns when the last of the connected Envoys put the version, or a later one, in force.

        `connected`: by cluster, the hashes of the Envoys that relays name. Returns Unix
        nanoseconds, and None while an Envoy has not, or when none is connected.
        """
        keys = [(cluster, envoy) for cluster, envoys in connected.items() for envoy in envoys]
        found = [self._in_force.get(key, (0, 0)) for key in keys]
        if not found or any(held < version for held, _ in found):
            return None
        return max(at for _, at in found)

    def count(self, version: int, connected: Mapping[str, frozenset[int]]) -> int:
        """Returns how many of these Envoys have the version, or a later one, in force."""
        keys = [(cluster, envoy) for cluster, envoys in connected.items() for envoy in envoys]
        return sum(self._in_force.get(key, (0, 0))[0] >= version for key in keys)

    def refused(self, version: int) -> list[Refusal]:
        """Returns the refusals of this version, in order of cluster and Envoy, one of each."""
        found = {
            key[:2]: refusal
            for key, (_, _, refusal) in sorted(self._newest.items())
            if refusal is not None and refusal.version == version
        }
        return list(found.values())

    def forget(self, version: int, connected: Mapping[str, frozenset[int]]) -> None:
        """Forgets answers to versions before this one, and Envoys that have left, if many have."""
        self._newest = {key: newest for key, newest in self._newest.items() if newest[0] >= version}
        named = {(cluster, envoy) for cluster, envoys in connected.items() for envoy in envoys}
        if len(self._in_force) > len(named) + _GONE:
            self._in_force = {key: held for key, held in self._in_force.items() if key in named}


def fnv1a(text: str) -> int:
    """Returns the 32-bit FNV-1a hash under which heartbeats name an Envoy."""
    found = 2_166_136_261
    for byte in text.encode():
        found = (found ^ byte) * 16_777_619 & 0xFFFF_FFFF
    return found

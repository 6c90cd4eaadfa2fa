"""Placement of one cluster: the union of what its relays report, each Envoy counted once. Pure: time is an argument.

Times are seconds of a clock that is never set (`time.monotonic`), at which heartbeats arrived. A wrong clock of a
publisher or of a relay changes no placement. What the sender's clock says orders the heartbeats of one relay only.

An Envoy counts for the time to live of the heartbeat that last named it, so that it may move to another relay
meanwhile. When its relay falls silent while others report, it counts for HANDOVER_S: it may need that long to notice
that its relay is gone. Silence of all relays says nothing about any of them, so no Envoy ages during it.
"""

import re
from dataclasses import dataclass

from spillway.v1.heartbeat_pb2 import Heartbeat

# An Envoy notices a dead host after 15 s (keep-alive in infra/envoy/pod.yaml); then it needs to connect and to be reported.
HANDOVER_S = 30.0
TTL_S = 60  # the longest that a heartbeat may ask for
RELAYS = 16  # of one cluster
ENVOYS = 8192  # named in one heartbeat
HOLD_S = 30 * 24 * 3600  # the longest that a relay may hold the weights of an expired ruleset
_FORGET_S = 600.0  # after which a silent relay is not mentioned any more
_RELAY = re.compile(r"[A-Za-z0-9._-]{0,253}")


class Unacceptable(ValueError):
    """A heartbeat that is not taken; `reason` groups, the text names key, value and what is allowed."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def check(heartbeat: Heartbeat) -> None:
    """Raises Unacceptable."""
    if not 1 <= heartbeat.ttl_seconds <= TTL_S:
        raise Unacceptable("ttl", f"ttl_seconds: {heartbeat.ttl_seconds}; must be 1 to {TTL_S}")
    if not _RELAY.fullmatch(heartbeat.relay):
        raise Unacceptable(
            "relay", f"relay: {heartbeat.relay[:80]!r}; must be at most 253 of A-Z a-z 0-9 . _ -"
        )
    if heartbeat.hold_seconds > HOLD_S:
        raise Unacceptable("hold", f"hold_seconds: {heartbeat.hold_seconds}; must be at most {HOLD_S}")
    if (named := sum(len(s.envoys) for s in heartbeat.services)) > ENVOYS:
        raise Unacceptable("envoys", f"services[].envoys: {named} in all; must be at most {ENVOYS}")


@dataclass(frozen=True)
class _Seen:
    """When a relay last named an Envoy, or last counted `count` Envoys without naming them."""

    relay: str
    at: float
    ttl_s: float
    count: int = 1


class Presence:
    """What the relays of one cluster report."""

    def __init__(self) -> None:
        self.relays: dict[str, float] = {}  # name -> when last heard
        self._sent: dict[str, int] = {}  # name -> when it sent that, by its own clock: Unix microseconds
        self._behind: dict[str, int] = {}  # name -> the same of the last one since that was not taken
        self._versions: dict[str, int] = {}  # name -> ruleset version that it serves
        self._holds: dict[
            str, int
        ] = {}  # name -> seconds for which it holds an expired ruleset, where it says so
        # (service, hash of an Envoy), or (service, relay) for the Envoys that a relay does not name
        self._seen: dict[tuple[str, int | str], _Seen] = {}
        self._first: float | None = None
        self._heard = self._since = float("-inf")  # last heartbeat; first one after the last silence
        self._ttl_s = 0.0

    @property
    def heard(self) -> float:
        """When the last heartbeat arrived."""
        return self._heard

    @property
    def until(self) -> float:
        """When the placement is forgotten unless another heartbeat comes."""
        return self._heard + self._ttl_s

    @property
    def serving(self) -> int | None:
        """The newest version that a live relay serves. None before every relay has had its turn."""
        if self._first is None or self._heard - self._first < self._ttl_s / 2:
            return None
        return max(self._versions[r] for r, at in self.relays.items() if at + self._ttl_s > self._heard)

    def hear(self, heartbeat: Heartbeat, at: float) -> bool:
        """Takes a checked heartbeat that arrived at `at`; False: a newer one of the same relay has been taken.
        Raises Unacceptable."""
        relay, ttl_s = heartbeat.relay, float(heartbeat.ttl_seconds)
        if self._older(heartbeat, at):
            return False
        self._make_room(relay, at, ttl_s)
        if at - self._heard > ttl_s / 2:
            self._since = at
        self._first = at if self._first is None else self._first
        self._heard, self._ttl_s = max(self._heard, at), ttl_s
        self.relays[relay], self._versions[relay] = at, heartbeat.ruleset_version
        self._holds.pop(relay, None)
        if heartbeat.HasField("hold_seconds"):
            self._holds[relay] = heartbeat.hold_seconds
        self._sent[relay] = heartbeat.at.ToMicroseconds()
        self._behind.pop(relay, None)
        for service in heartbeat.services:
            for envoy in service.envoys:
                self._seen[service.service, envoy] = _Seen(relay, at, ttl_s)
            if (unnamed := service.connected_envoys - len(service.envoys)) > 0:
                self._seen[service.service, relay] = _Seen(relay, at, ttl_s, unnamed)
        self._seen = {key: seen for key, seen in self._seen.items() if not self._lapsed(seen)}
        return True

    def placement(self, cluster: str) -> Heartbeat | None:
        """The union, without `at`. None in the first half of a time to live: not every relay has had its turn yet."""
        if self._first is None or self._heard - self._first < self._ttl_s / 2:
            return None
        counts: dict[str, int] = {}
        for (service, _), seen in self._seen.items():
            counts[service] = counts.get(service, 0) + seen.count
        union = Heartbeat(cluster=cluster, ttl_seconds=int(self._ttl_s), ruleset_version=self._version())
        # The longest: until then rules may still steer.
        holds = [self._holds.get(relay) for relay in self._reporting()]
        if None not in holds:
            union.hold_seconds = max(holds)
        for service, count in sorted(counts.items()):
            union.services.add(service=service, connected_envoys=min(count, 2**32 - 1))
        return union

    def _older(self, heartbeat: Heartbeat, at: float) -> bool:
        """Whether a heartbeat was sent no later than the last one that was taken of its relay. All those of a relay whose
        clock was set back are: once it has sent two in order, they count after half a time to live without a newer
        one, so before its Envoys lapse. Relays of 0.1.0 share one name, and are ordered by arrival alone."""
        relay, sent = heartbeat.relay, heartbeat.at.ToMicroseconds()
        heard, last = self.relays.get(relay, float("-inf")), self._sent.get(relay, 0)
        if at < heard or not relay or not sent or sent > last:
            return at < heard
        before, self._behind[relay] = self._behind.get(relay, sent), sent
        return sent == last or sent <= before or at - heard < heartbeat.ttl_seconds / 2

    def _lapsed(self, seen: _Seen) -> bool:
        relay_spoke_since = self.relays.get(seen.relay, float("-inf")) > seen.at
        lasts = seen.ttl_s if relay_spoke_since else max(HANDOVER_S, seen.ttl_s)
        return max(seen.at, self._since) + lasts <= self._heard

    def _version(self) -> int:
        """The lowest that a relay serves which was heard within the time to live."""
        return min(self._versions[relay] for relay in self._reporting())

    def _reporting(self) -> list[str]:
        """The relays that were heard within the time to live."""
        return [relay for relay, at in self.relays.items() if at + self._ttl_s > self._heard]

    def _make_room(self, relay: str, at: float, ttl_s: float) -> None:
        for name in [name for name, heard in self.relays.items() if heard + _FORGET_S < at]:
            self._forget(name)
        if relay in self.relays or len(self.relays) < RELAYS:
            return
        longest_silent = min(self.relays, key=lambda name: self.relays[name])
        if self.relays[longest_silent] + ttl_s > at:
            raise Unacceptable("relays", f"relay: {relay!r} is one more than {RELAYS}; all of those report")
        self._forget(longest_silent)

    def _forget(self, relay: str) -> None:
        del self.relays[relay], self._versions[relay], self._sent[relay]
        self._behind.pop(relay, None)
        self._holds.pop(relay, None)

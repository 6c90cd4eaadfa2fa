"""Placement of one cluster: the union of its relays' reports, with each Envoy counted once.

Pure: time is an argument. Times are the arrivals of heartbeats in seconds of a monotonic clock
(`time.monotonic`), so a wrong clock of a publisher or of a relay changes no placement. The sender's
clock only orders the heartbeats of one relay.

An Envoy counts for the time to live of the heartbeat that last named it. Meanwhile it may move to
another relay. When its relay falls silent while others report, the Envoy counts for HANDOVER_S,
because it may need that long to notice that its relay is gone. When all relays are silent, nothing
is known about any Envoy, so no Envoy ages during that time.
"""

import re
from dataclasses import dataclass

from spillway.v1.heartbeat_pb2 import CallsInFlight, Heartbeat

from spillway_publisher.rules import in_flight

# An Envoy notices a dead host after 15 s (keep-alive in infra/envoy/pod.yaml). Then it must connect
# and be reported.
HANDOVER_S = 30.0
TTL_S = 60  # the longest time to live that a heartbeat may ask for
RELAYS = 16  # at most, of one cluster
ENVOYS = 8192  # at most, named in one heartbeat
HOLD_S = 30 * 24 * 3600  # the longest time that a relay may hold the weights of an expired ruleset
_FORGET_S = 600.0  # after which a silent relay is left out
_RELAY = re.compile(r"[A-Za-z0-9._-]{0,253}")


class Unacceptable(ValueError):
    """A heartbeat was rejected.

    `reason` is the kind of problem; the text names key, value and limit.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def check(heartbeat: Heartbeat) -> None:
    """Checks the fields of a heartbeat. Raises Unacceptable."""
    if not 1 <= heartbeat.ttl_seconds <= TTL_S:
        raise Unacceptable("ttl", f"ttl_seconds: {heartbeat.ttl_seconds}; must be 1 to {TTL_S}")
    if not _RELAY.fullmatch(heartbeat.relay):
        raise Unacceptable(
            "relay", f"relay: {heartbeat.relay[:80]!r}; must be at most 253 of A-Z a-z 0-9 . _ -"
        )
    if heartbeat.hold_seconds > HOLD_S:
        raise Unacceptable("hold", f"hold_seconds: {heartbeat.hold_seconds}; must be at most {HOLD_S}")
    for service in heartbeat.services:
        if service.HasField("pods") != service.HasField("ready_pods") or service.ready_pods > service.pods:
            raise Unacceptable(
                "pods",
                f"services[{service.service[:80]!r}]: pods {service.pods}, ready_pods {service.ready_pods}; "
                "must be both absent, or ready_pods at most pods",
            )
    if (named := sum(len(s.envoys) for s in heartbeat.services)) > ENVOYS:
        raise Unacceptable("envoys", f"services[].envoys: {named} in all; must be at most {ENVOYS}")
    if (size := in_flight.size(heartbeat)) > in_flight.DESTINATIONS:
        raise Unacceptable(
            "calls_in_flight",
            f"calls_in_flight: {size} services and destinations; must be at most {in_flight.DESTINATIONS}",
        )


@dataclass(frozen=True)
class _Seen:
    """When a relay last named an Envoy, or last counted `count` Envoys without naming them."""

    relay: str
    at: float
    ttl_s: float
    count: int = 1


class Presence:
    """The Envoys that the relays of one cluster report."""

    def __init__(self) -> None:
        self.relays: dict[str, float] = {}  # relay -> arrival of its last heartbeat
        # relay -> when it sent that heartbeat, by its own clock: Unix microseconds
        self._sent: dict[str, int] = {}
        # relay -> sending time of the last heartbeat rejected since then as older
        self._behind: dict[str, int] = {}
        self._versions: dict[str, int] = {}  # relay -> ruleset version that it serves
        self._trying: dict[str, int] = {}  # relay -> version on trial that it serves; 0: none
        self._holds: dict[
            str, int
        ] = {}  # relay -> seconds for which it holds an expired ruleset, if reported
        # relay -> service -> pods and ready pods, where it knows them
        self._pods: dict[str, dict[str, tuple[int, int]]] = {}
        self._calls: dict[str, tuple[CallsInFlight, ...]] = {}  # relay -> calls in flight
        # Key: (service, hash of an Envoy), or (service, relay) for Envoys that a relay does not
        # name.
        self._seen: dict[tuple[str, int | str], _Seen] = {}
        self._first: float | None = None
        # Arrivals: the last heartbeat; the first one after the last silence
        self._latest_at = self._since = float("-inf")
        self._ttl_s = 0.0

    @property
    def latest_at(self) -> float:
        """When the last heartbeat arrived."""
        return self._latest_at

    @property
    def until(self) -> float:
        """When the placement expires unless another heartbeat arrives."""
        return self._latest_at + self._ttl_s

    @property
    def serving(self) -> int | None:
        """The newest version that live relays serve; None before all had time to report."""
        if self._first is None or self._latest_at - self._first < self._ttl_s / 2:
            return None
        return max(self._versions[r] for r, at in self.relays.items() if at + self._ttl_s > self._latest_at)

    @property
    def trying(self) -> int:
        """The version on trial that every live relay serves; 0 unless all serve the same."""
        served = {self._trying[relay] for relay in self._reporting()}
        return served.pop() if len(served) == 1 else 0

    def envoys(self) -> frozenset[int]:
        """Returns the hashes of the Envoys that relays name.

        Relays of 0.1.0 count their Envoys without naming them.
        """
        return frozenset(envoy for _, envoy in self._seen if isinstance(envoy, int))

    def hear(self, heartbeat: Heartbeat, at: float) -> bool:
        """Takes a checked heartbeat that arrived at `at`.

        Returns False when it was sent earlier than another one of the same relay. Raises
        Unacceptable when the cluster has too many relays.
        """
        relay, ttl_s = heartbeat.relay, float(heartbeat.ttl_seconds)
        if self._older(heartbeat, at):
            return False
        self._make_room(relay, at, ttl_s)
        if at - self._latest_at > ttl_s / 2:
            self._since = at
        self._first = at if self._first is None else self._first
        self._latest_at, self._ttl_s = max(self._latest_at, at), ttl_s
        self.relays[relay], self._versions[relay] = at, heartbeat.ruleset_version
        self._trying[relay] = heartbeat.canary_version
        self._holds.pop(relay, None)
        if heartbeat.HasField("hold_seconds"):
            self._holds[relay] = heartbeat.hold_seconds
        self._sent[relay] = heartbeat.at.ToMicroseconds()
        self._behind.pop(relay, None)
        self._pods[relay] = {
            service.service: (service.pods, service.ready_pods)
            for service in heartbeat.services
            if service.HasField("pods")
        }
        self._calls[relay] = tuple(heartbeat.calls_in_flight)
        for service in heartbeat.services:
            for envoy in service.envoys:
                self._seen[service.service, envoy] = _Seen(relay, at, ttl_s)
            if (unnamed := service.connected_envoys - len(service.envoys)) > 0:
                self._seen[service.service, relay] = _Seen(relay, at, ttl_s, unnamed)
        self._seen = {key: seen for key, seen in self._seen.items() if not self._lapsed(seen)}
        return True

    def placement(self, cluster: str) -> Heartbeat | None:
        """Returns the union of the relays' reports, without `at`.

        Returns None in the first half of a time to live, when some relays may not have reported
        yet.
        """
        if self._first is None or self._latest_at - self._first < self._ttl_s / 2:
            return None
        counts: dict[str, int] = {}
        for (service, _), seen in self._seen.items():
            counts[service] = counts.get(service, 0) + seen.count
        union = Heartbeat(cluster=cluster, ttl_seconds=int(self._ttl_s), ruleset_version=self._version())
        # The longest hold counts, because rules may still steer until then.
        reporting = self._reporting()
        if all(relay in self._holds for relay in reporting):
            union.hold_seconds = max(self._holds[relay] for relay in reporting)
        pods = self._known_pods(reporting)
        for service, count in sorted(counts.items()):
            found = union.services.add(service=service, connected_envoys=min(count, 2**32 - 1))
            if service in pods:
                found.pods, found.ready_pods = pods[service]
        union.calls_in_flight.extend(in_flight.total(self._calls[relay] for relay in reporting))
        return union

    def _known_pods(self, reporting: list[str]) -> dict[str, tuple[int, int]]:
        """Returns pods and ready pods by service, from the relay that reported them last.

        All relays of a cluster read the same API, so their numbers are not added.
        """
        found: dict[str, tuple[int, int]] = {}
        for relay in sorted(reporting, key=lambda name: self.relays[name]):
            found |= self._pods.get(relay, {})
        return found

    def _older(self, heartbeat: Heartbeat, at: float) -> bool:
        """Returns whether the heartbeat was sent no later than the last one taken from its relay.

        All heartbeats of a relay whose clock was set back look older. They are accepted once two of
        them arrived in the order of their sending, and half a time to live passed without a newer
        one. So they count before the relay's Envoys lapse. Relays of 0.1.0 have no name of their
        own, so only the order of arrival counts for them.
        """
        relay, sent = heartbeat.relay, heartbeat.at.ToMicroseconds()
        previous, last = self.relays.get(relay, float("-inf")), self._sent.get(relay, 0)
        if at < previous or not relay or not sent or sent > last:
            return at < previous
        before, self._behind[relay] = self._behind.get(relay, sent), sent
        return sent == last or sent <= before or at - previous < heartbeat.ttl_seconds / 2

    def _lapsed(self, seen: _Seen) -> bool:
        relay_spoke_since = self.relays.get(seen.relay, float("-inf")) > seen.at
        lasts = seen.ttl_s if relay_spoke_since else max(HANDOVER_S, seen.ttl_s)
        return max(seen.at, self._since) + lasts <= self._latest_at

    def _version(self) -> int:
        """Returns the lowest version among the relays that reported within the time to live."""
        return min(self._versions[relay] for relay in self._reporting())

    def _reporting(self) -> list[str]:
        """Returns the relays that reported within the time to live."""
        return [relay for relay, at in self.relays.items() if at + self._ttl_s > self._latest_at]

    def _make_room(self, relay: str, at: float, ttl_s: float) -> None:
        for name in [name for name, latest in self.relays.items() if latest + _FORGET_S < at]:
            self._forget(name)
        if relay in self.relays or len(self.relays) < RELAYS:
            return
        longest_silent = min(self.relays, key=lambda name: self.relays[name])
        if self.relays[longest_silent] + ttl_s > at:
            raise Unacceptable(
                "relays", f"relay: {relay!r}; {RELAYS} other relays report, and at most {RELAYS} are allowed"
            )
        self._forget(longest_silent)

    def _forget(self, relay: str) -> None:
        del self.relays[relay], self._versions[relay], self._sent[relay], self._trying[relay]
        self._behind.pop(relay, None)
        self._holds.pop(relay, None)
        self._pods.pop(relay, None)
        self._calls.pop(relay, None)

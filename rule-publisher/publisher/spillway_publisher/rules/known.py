"""The rulesets that relays route by, even when the bucket has lost them. Pure.

The bucket may have been emptied, or restored from an older copy. A process remembers what the
bucket had, and a starting process learns the newest checkpoint. Where neither exists, relays report
in their heartbeats which version they serve. While that is unknown, no proposal can be compared
with the rulesets in force.
"""

from collections.abc import Collection, Mapping

from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import slices


class Known:
    """By cluster, the newest ruleset seen so far."""

    def __init__(self, clusters: Collection[str]) -> None:
        self._clusters = sorted(clusters)
        self._newest: dict[str, Ruleset] = {}
        # Why the newest checkpoint could not be read; None: it was read
        self.unread: str | None = None

    def forget(self) -> None:
        """Forgets all rulesets, because other keys are trusted now and everything is read again."""
        self._newest = {}

    def in_force(self, bucket: Mapping[str, Ruleset]) -> dict[str, Ruleset]:
        """Returns the newest ruleset by cluster, after taking in those that the bucket holds."""
        for cluster, ruleset in bucket.items():
            if cluster not in self._newest or ruleset.version >= self._newest[cluster].version:
                self._newest[cluster] = ruleset
        return dict(self._newest)

    def learn(self, checkpoint: Ruleset, now_ns: int) -> list[str]:
        """Takes the checkpoint for clusters without a ruleset as new, and returns those clusters.

        Renewals leave no checkpoint, so the real expiry is unknown. An expired checkpoint is
        treated as if it expired now: relays hold it from now on.
        """
        older = [
            cluster
            for cluster in self._clusters
            if cluster not in self._newest or self._newest[cluster].version < checkpoint.version
        ]
        parts = slices.cut(checkpoint, self._clusters, checkpoint.version)
        for cluster in older:
            self._newest[cluster] = parts[cluster]
            if parts[cluster].expires_at.ToNanoseconds() < now_ns:
                parts[cluster].expires_at.FromNanoseconds(now_ns)
        return older

    def unknown(self, serving: Mapping[str, int], listened: bool) -> str | None:
        """Returns why it is unknown which rulesets relays route by; None when it is known.

        `serving`: by cluster, the newest version that its relays serve, without clusters whose
        relays are silent. `listened`: whether all relays have had the time to report.
        """
        for cluster in self._clusters:
            version = serving.get(cluster)
            if cluster in self._newest or version == 0:
                continue
            if self.unread:
                return f"the bucket has no ruleset of {cluster!r}, and the newest checkpoint cannot be read: {self.unread}"
            if version:
                return f"relays of {cluster!r} serve version {version}, which is neither in the bucket nor a checkpoint"
            if not self._newest and not listened:
                return f"no relay of {cluster!r} has reported yet which version it serves"
        return None

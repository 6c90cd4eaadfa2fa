"""What relays route by, also where the bucket does not say it: it was emptied, or brought back from an older copy. Pure.

A process remembers what the bucket had; one that starts learns the newest checkpoint. Where there is neither, relays say
in their heartbeats whether they serve anything. While that is unknown, nothing can be judged by what is in force.
"""

from collections.abc import Collection, Mapping

from spillway.v1.ruleset_pb2 import Ruleset

from spillway_publisher.rules import slices


class Known:
    """By cluster, the newest ruleset that was ever seen."""

    def __init__(self, clusters: Collection[str]) -> None:
        self._clusters = sorted(clusters)
        self._newest: dict[str, Ruleset] = {}
        self.unread: str | None = None  # why the newest checkpoint could not be read

    def forget(self) -> None:
        """Other keys are trusted now, so everything is read again."""
        self._newest = {}

    def in_force(self, bucket: Mapping[str, Ruleset]) -> dict[str, Ruleset]:
        """By cluster; `bucket` is what its keys hold."""
        for cluster, ruleset in bucket.items():
            if cluster not in self._newest or ruleset.version >= self._newest[cluster].version:
                self._newest[cluster] = ruleset
        return dict(self._newest)

    def learn(self, checkpoint: Ruleset, now_ns: int) -> list[str]:
        """Takes a checkpoint where nothing as new is known; gives those clusters. Renewals leave no checkpoint, so nobody
        knows when it expired: relays are taken to hold it from now on."""
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
        """Why it is not known what relays route by; None: it is. `serving`: by cluster, the newest version that its relays
        serve, without clusters whose relays are silent; `listened`: whether all relays have had the time to report."""
        for cluster in self._clusters:
            version = serving.get(cluster)
            if cluster in self._newest or version == 0:
                continue
            if self.unread:
                return f"the bucket has nothing of {cluster!r}, and the newest checkpoint cannot be read: {self.unread}"
            if version:
                return f"relays of {cluster!r} serve version {version}, which is neither in the bucket nor a checkpoint"
            if not self._newest and not listened:
                return f"no relay of {cluster!r} has reported yet which version it serves"
        return None

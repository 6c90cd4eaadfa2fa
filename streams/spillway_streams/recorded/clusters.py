"""The clusters in which the spans of recorded traces were made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway_streams import StreamsError
from spillway_streams.load.attributes import CLUSTER


class TraceFileError(StreamsError):
    """An unusable trace file.

    Names the file, the place in it (line and column, or index and key), and what must be there.
    """


@dataclass(frozen=True)
class Clusters:
    """How to find the cluster that a span was made in.

    `name`: every span was made there. `attribute`: the attribute that names the cluster; in Jaeger
    a tag of the process or else of the span, in OTLP an attribute of the resource or else of the
    span. With neither, our own attribute or k8s.cluster.name names it. `known`: the valid names;
    every other name is an error.
    """

    known: frozenset[str]
    name: str = ""
    attribute: str = ""

    def of(self, where: str, *levels: Mapping[str, Any]) -> str:
        """Returns the cluster by the first of the levels that names it. Raises TraceFileError."""
        if self.name:
            return self.name
        keys = (self.attribute,) if self.attribute else CLUSTER
        found = next((level[key] for level in levels for key in keys if key in level), None)
        if found is None:
            hint = "" if self.attribute else "; --cluster or --cluster-attribute tells where spans were made"
            raise TraceFileError(f"{where}: no attribute {' or '.join(map(repr, keys))}{hint}")
        if found not in self.known:
            raise TraceFileError(
                f"{where}: cluster {found!r} is not in the topology; it has {', '.join(sorted(self.known))}"
            )
        return found

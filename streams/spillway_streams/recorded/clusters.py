"""Where the spans of recorded traces were made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway_streams import StreamsError
from spillway_streams.load.attributes import CLUSTER


class TraceFileError(StreamsError):
    """Names the file, the place in it (line and column, or index and key) and what must be there."""


@dataclass(frozen=True)
class Clusters:
    """Where spans were made: all in one cluster, or as an attribute (Jaeger: process tag, then span tag; OTLP: of the
    resource, then of the span) tells; with neither, as our own attribute or k8s.cluster.name tells. `known`: every
    other name is an error."""

    known: frozenset[str]
    name: str = ""
    attribute: str = ""

    def of(self, where: str, *levels: Mapping[str, Any]) -> str:
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

"""Two applications in two clusters, and one leader that solves for them.

Its servers are in memory.
"""

import copy
import dataclasses
import logging
from pathlib import Path
from types import SimpleNamespace

from google.protobuf import json_format
from spillway.v1.ruleset_pb2 import Ruleset
from spillway_contracts import topology
from spillway_contracts.guardrails import GuardrailFile
from spillway_contracts.hot_state import UnknownEntry
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.problem.rules import Rules, of_ruleset
from spillway_optimizer.process.states import States
from spillway_optimizer.service.following import Following
from spillway_optimizer.service.live import LiveMesh
from spillway_optimizer.solvers.convex import Stop
from spillway_optimizer.solving.solving import Solving
from spillway_optimizer.solving.triggers import Trigger
from two_applications import OTHER, SERVICES, document, topology_text, with_third

NOW = 1767225631.0


class Mesh:
    """The clusters and the leader.

    `solve` runs once and returns the rows by application. Published rules are in force at once.
    """

    def __init__(self, settings, folder: Path, third: str = "", **values):
        self.document = with_third(document(), third) if third else document()
        self.clusters = ("west", "east", third) if third else ("west", "east")
        self.sent, self.rows, self.in_force = [], [], {}
        self.placement: dict[str, frozenset[str] | None] = dict.fromkeys(self.clusters, SERVICES)
        self.unknown: dict[str, dict[str, UnknownEntry]] = {}
        self.states = States(logging.getLogger("test"))
        self.settings = settings(**values)
        (folder / "topology.yaml").write_text(topology_text(third))
        self.topology = topology.load(folder / "topology.yaml")
        lease = SimpleNamespace(held=lambda: True, fencing_token=7, hold=self.hold)
        live = LiveMesh(self, self.clusters, self, self, lease, 10.0, self.states)
        file = GuardrailFile(None, self.topology)
        self.solving = Solving(self.settings, self.topology, live, file, self.states)
        self.following = Following(None, self.settings.policy, Stop(), self.states)

    async def solve(self, now: float, change=None, kind: str = "period") -> dict[str, dict]:
        """Runs one solve. `change` edits the document of this run.

        Board entries are one second older than `now`, unless `change` sets their time.
        """
        edited = copy.deepcopy(self.document)
        for board in ("load", "demand"):
            for entries in edited[board].values():
                for entry in entries.values():
                    entry["at"] = now - 1
        if change:
            change(edited)
        read = dataclasses.replace(telemetry.from_document(edited), **self.known(now))
        self.rows.clear()
        assert await self.solving.run(now, Trigger(kind), read, self.following) is None
        return {row["application"]: row for row in self.rows}

    def known(self, now: float) -> dict:
        """Returns telemetry fields that are not in the document."""
        return {"placement": self.placement, "unknown": self.unknown}

    def rules(self, prefix: str = "") -> Rules:
        """Returns the rules of one application in the newest proposal.

        That is the application of gateway, or the other one.
        """
        return {
            k: w for k, w in of_ruleset(self.sent[-1]).items() if k[2].startswith(OTHER) == (prefix == OTHER)
        }

    def reasons(self) -> dict[tuple[str, str, str], str]:
        return {
            (r.source_cluster, r.source_service, r.traffic_class.service): r.reason
            for r in self.sent[-1].rules
        }

    # Stand-ins for the lease, Redis, NATS and ClickHouse.

    async def hold(self) -> bool:
        return True

    async def mget(self, keys):
        return [self.in_force.get(cluster) for cluster in self.clusters]

    async def publish(self, ruleset: Ruleset) -> None:
        self.sent.append(ruleset)
        for cluster in self.clusters:
            part = Ruleset()
            part.CopyFrom(ruleset)
            part.version = len(self.sent)
            del part.rules[:]
            part.rules.extend(rule for rule in ruleset.rules if rule.source_cluster == cluster)
            self.in_force[cluster] = json_format.MessageToJson(part)

    def add(self, table: str, row: dict) -> None:
        self.rows.append(row)

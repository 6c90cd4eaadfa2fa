"""One PAPA for each application: rules that do not interact are explored at the same time.

Applications share no service (model/graph.py), so a step in one changes nothing that is measured in
another. Each has its own objective and measurements: requests of others are no noise, and what an
application lacks holds up no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from spillway.v1.topology_pb2 import Topology
from spillway_contracts.guardrails import GuardrailFile

from spillway_optimizer.inputs.guardrails import Follower
from spillway_optimizer.inputs.telemetry import Telemetry
from spillway_optimizer.model import graph
from spillway_optimizer.model.model import Limits
from spillway_optimizer.papa.adjusting import Adjusting
from spillway_optimizer.papa.checkpoint import joined
from spillway_optimizer.papa.mesh import PapaMesh
from spillway_optimizer.papa.sharing import ApplicationMesh, Shared
from spillway_optimizer.problem.rules import Rules
from spillway_optimizer.process.states import States
from spillway_optimizer.solving.config import PapaTuning

FOLLOW_S = 5.0  # between two looks at which applications there are
WHOLE_MESH = "the mesh"
Partition = Mapping[str, frozenset[str]]  # classes by application


def partition(telemetry: Telemetry, rules: Rules, now: float) -> Partition:
    """Returns the classes of each application, also of those that have no requests now.

    An application has the name of its first service, which does not depend on the demand.
    """
    rows = graph.ratios(telemetry, now, Limits().model_max_age_s).value
    known = {class_id for board in telemetry.demand.values() for class_id in board}
    known |= {class_id for pair in rows for class_id in pair} | {key.class_id for key in rules}
    classes = {class_id: graph.service_of(class_id) for class_id in sorted(known)}
    callers = [(graph.node(key.source_service), key.class_id) for key in rules]
    component = graph.components(classes, [*rows, *callers])
    groups: dict[str, set[str]] = {}
    for class_id in classes:
        groups.setdefault(component[class_id], set()).add(class_id)
    return {min(classes[k] for k in group): frozenset(group) for group in groups.values()}


@dataclass(frozen=True)
class _Member:
    mesh: ApplicationMesh
    adjusting: Adjusting


class Applications:
    """Which applications there are, and the PAPA of each. Whoever uses it runs their turns."""

    def __init__(
        self, settings: PapaTuning, topology: Topology, mesh: PapaMesh, file: GuardrailFile, states: States
    ):
        self._settings, self._topology, self._file, self._states = settings, topology, file, states
        self._shared = Shared(mesh, states)
        self._clusters = {cluster.name for cluster in topology.clusters}
        self._members: dict[str, _Member] = {}
        self._follow_at = float("-inf")

    async def follow(self) -> tuple[list[str], dict[str, Adjusting]]:
        """Looks which applications there are, every FOLLOW_S.

        Returns the names of those that end now, and then those that begin. One that changes ends
        and begins again. Raises what the mesh raises when it cannot be read.
        """
        shared, elapsed = self._shared, self._shared.mesh.elapsed()
        if elapsed < self._follow_at:
            return [], {}
        self._follow_at = elapsed + FOLLOW_S
        telemetry = await shared.fresh("telemetry", shared.mesh.telemetry)
        in_force = await shared.fresh("in_force", shared.mesh.in_force)
        if telemetry is None or in_force is None:
            return [], {}
        if set(in_force.versions) != self._clusters:
            return [], {}  # rules that are not read yet would seem to belong to nobody
        found = partition(telemetry, in_force.rules, shared.mesh.now())
        if self._settings.scope == "mesh":
            found = {WHOLE_MESH: frozenset[str]().union(*found.values())}
        ended, found = self._settled(found)
        for name in ended:
            del self._members[name]
            shared.returned(name)
        for name, member in self._members.items():
            self._grow(member, found.get(name, frozenset()))
        ruled = {key.class_id for key in in_force.rules}
        begun = [name for name, classes in found.items() if name not in self._members and classes & ruled]
        return ended, {name: self._begun(name, found[name]) for name in sorted(begun)}

    def forget(self) -> list[str]:
        """Ends all, because another process leads. Returns their names."""
        ended = sorted(self._members)
        self._members, self._follow_at = {}, float("-inf")
        self._shared.forget()
        return ended

    def _settled(self, found: Partition) -> tuple[list[str], Partition]:
        """Returns which applications end, because they interact now, and what there is then.

        One that falls apart stays whole: an edge that comes and goes would end its steps each time.
        """
        mine = {name: member.mesh.classes for name, member in self._members.items()}

        def owners(classes: frozenset[str]) -> list[str]:
            return [name for name, known in mine.items() if known & classes]

        ended = sorted(
            {name for classes in found.values() for name in owners(classes) if len(owners(classes)) > 1}
        )
        for name in ended:
            del mine[name]
        settled: dict[str, frozenset[str]] = {}
        for name, classes in found.items():
            owner = next(iter(owners(classes)), name)
            settled[owner] = settled.get(owner, frozenset()) | classes
        return ended, settled

    def _grow(self, member: _Member, classes: frozenset[str]) -> None:
        new = classes - member.mesh.classes
        member.mesh.classes |= new
        if new and member.adjusting.checkpoint is not None:  # else it takes them when it loads
            part = self._shared.grown(new)
            member.adjusting.checkpoint = joined([member.adjusting.checkpoint, part])

    def _begun(self, name: str, classes: frozenset[str]) -> Adjusting:
        mesh = ApplicationMesh(name, classes, self._shared)
        file, states = Follower(self._file), self._states
        adjusting = Adjusting(self._settings, self._topology, mesh, file, states, f"papa, {name}")
        self._members[name] = _Member(mesh, adjusting)
        return adjusting

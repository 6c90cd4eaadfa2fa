"""Acts of operators: what they make of the guardrail file, and which of them are accepted. Pure.

An act can only tighten. Each field of the composition takes the stricter of the file's value and
the acts'. A denial precedes pins and frozen weights, as a denial of the file does.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from spillway.v1.topology_pb2 import Topology
from spillway_contracts import guardrails as contract
from spillway_contracts import names
from spillway_contracts.acts import MAXIMUM_LIFETIME, Act, KeptAct
from spillway_contracts.guardrails import Denial, Guardrails, Pin

from spillway_publisher.rules import weights

MOST_IN_FORCE = 100
MOST_KEPT = 1000  # also ended and expired ones, until the bucket forgets them

ACCEPTED, REFUSED, PROPOSED = "accepted", "refused", "proposed"
ENDED, EXPIRED = "ended", "expired"


def compose(file: Guardrails, acts: Iterable[Act], now: datetime, clusters: Collection[str]) -> Guardrails:
    """Returns the file's guardrails, tightened by the acts that have not expired.

    The order of the acts does not matter. Without acts in force it is the file's value itself. Of
    denials, what `applied` returns counts.
    """
    valid = [act for act in acts if act.expires is not None and act.expires > now]
    if not valid:
        return file
    kinds = {act.act for act in valid}
    shifts = [act.parts for act in valid if act.act == "maximum_shift" and act.parts is not None]
    shares = [act.parts for act in valid if act.act == "minimum_local_share" and act.parts is not None]
    if file.maximum_shift is not None:
        shifts.append(file.maximum_shift)
    denied = applied(file, valid, clusters)
    return file.model_copy(
        update={
            "kill": file.kill or "kill" in kinds,
            "freeze": file.freeze or "freeze" in kinds,
            "maximum_shift": min(shifts, default=None),
            "minimum_local_share": max([file.minimum_local_share, *shares]),
            "denied_destinations": [*file.denied_destinations, *denied],
            "pins": _pins(file.pins, denied),
        }
    )


def applied(file: Guardrails, acts: Iterable[Act], clusters: Collection[str]) -> list[Denial]:
    """Returns the denials of the acts that rulesets can carry, in order, without the file's.

    Clusters that have left the topology are left out. So is a denial with which the rulesets of a
    cluster would have too many: the file may have got more since the act was accepted.
    """
    added = {act.denial.model_dump_json(): act.denial for act in acts if act.denial is not None}
    carried, known, found = Carried(clusters), list(file.denied_destinations), list[Denial]()
    for denial in known:
        carried.add(denial)
    for _, denial in sorted(added.items()):
        names_ = [name for name in denial.clusters if name in clusters]
        narrowed = denial.model_copy(update={"clusters": names_})
        if names_ and narrowed not in known and narrowed not in found and carried.has_room(narrowed):
            carried.add(narrowed)
            found.append(narrowed)
    return found


class Carried:
    """The classes of the denials that each cluster's ruleset carries; '' is every class."""

    def __init__(self, clusters: Collection[str]) -> None:
        self._classes: dict[str, set[str]] = {cluster: set() for cluster in clusters}

    def _sources(self, denial: Denial) -> list[set[str]]:
        if denial.source_cluster is None:
            return list(self._classes.values())
        return [self._classes[denial.source_cluster]] if denial.source_cluster in self._classes else []

    def add(self, denial: Denial) -> None:
        for classes in self._sources(denial):
            classes.add(denial.traffic_class or "")

    def has_room(self, denial: Denial) -> bool:
        """Returns whether no ruleset has too many with it; also False where no cluster has it."""
        sources, class_id = self._sources(denial), denial.traffic_class or ""
        most = names.VALUE_DENIALS_PER_CLUSTER
        return bool(sources) and all(class_id in classes or len(classes) < most for classes in sources)


def left_out(file: Guardrails, acts: Collection[Act], clusters: Collection[str]) -> list[str]:
    """Returns the ids of the acts with denials that are not applied in full, in order."""
    known = [*file.denied_destinations, *applied(file, acts, clusters)]
    return sorted(act.id for act in acts if act.denial is not None and act.denial not in known)


def _pins(pins: list[Pin], denied: list[Denial]) -> list[Pin]:
    """Returns the pins without denied destinations. A pin that has no other is left out."""
    if not denied:
        return pins
    policy = Guardrails.model_construct(denied_destinations=denied)
    adapted = []
    for pin in pins:
        kept = {
            cluster: weight
            for cluster, weight in pin.destinations.items()
            if not policy.denies(pin.source_cluster, pin.traffic_class, cluster)
        }
        if len(kept) == len(pin.destinations):
            adapted.append(pin)
        elif scaled := weights.scaled(kept):
            adapted.append(pin.model_copy(update={"destinations": scaled}))
    return adapted


@dataclass(frozen=True)
class Ruling:
    """What became of an act.

    `refused`: why it is refused; None: it is accepted. `before`, `after`: the value of what it
    changes. `ended`: the earlier act that it ends, which is ended already when it is a repetition.
    """

    refused: str | None
    before: str = ""
    after: str = ""
    ended: KeptAct | None = None


@dataclass(frozen=True)
class Situation:
    """What a decision about an act depends on. `kept`: accepted acts by id, also expired ones."""

    topology: Topology
    file: Guardrails
    kept: Mapping[str, KeptAct]
    now: datetime

    @property
    def clusters(self) -> list[str]:
        return sorted(cluster.name for cluster in self.topology.clusters)

    def acts(self, without: str = "") -> list[Act]:
        """Returns the acts in force, without this one."""
        return [
            kept.act for key, kept in sorted(self.kept.items()) if kept.in_force(self.now) and key != without
        ]

    def composed(self, *more: Act, without: str = "") -> Guardrails:
        """Returns the guardrails under the acts in force and these, without the one named."""
        return compose(self.file, [*self.acts(without), *more], self.now, self.clusters)


def decide(act: Act, via: str, situation: Situation) -> Ruling:
    """Decides about an act that has arrived on the subject of `via`. Never raises."""
    if act.via != via:
        return Ruling(f"via: {act.via}; must be {via}, whose subject it was sent on")
    known = situation.kept.get(act.id)
    if known is not None and known.act != act:
        return Ruling(f"id: {act.id}: another act has it already")
    if act.act == "end":
        return _ending(act, situation)
    if known is not None:  # the message is delivered again
        return Ruling(None, known.before, known.after)
    if problems := _problems(act, situation):
        return Ruling("; ".join(problems))
    before, after = (
        value(policy, act, situation.clusters) for policy in (situation.composed(), situation.composed(act))
    )
    return Ruling(None, before, after)


def _ending(act: Act, situation: Situation) -> Ruling:
    ended = situation.kept.get(act.ends or "")
    if ended is None:
        return Ruling(f"ends: {act.ends}: no such act is kept")
    repeated = ended.ended_by == act
    if not ended.in_force(situation.now) and not repeated:
        how = "has ended already" if ended.ended_by else "has expired"
        return Ruling(f"ends: {act.ends}: it {how}")
    return Ruling(None, *lifted(ended, situation), ended)


def lifted(ended: KeptAct, situation: Situation) -> tuple[str, str]:
    """Returns the value of what an act changes, with it and without it."""
    others = situation.acts(without=ended.act.id)
    # Of an act that has expired too: what it was worth until then
    moment = min(situation.now, ended.at)
    with_it = compose(situation.file, [*others, ended.act], moment, situation.clusters)
    without = compose(situation.file, others, moment, situation.clusters)
    return (
        value(with_it, ended.act, situation.clusters),
        value(without, ended.act, situation.clusters),
    )


def value(policy: Guardrails, act: Act, clusters: Collection[str]) -> str:
    """Returns the value of what an act changes in these guardrails, as JSON.

    Of a denial: the clusters that are denied to all requests that the denial is about.
    """
    if act.denial is None:
        return json.dumps(getattr(policy, act.act))
    sources = sorted(clusters) if act.denial.source_cluster is None else [act.denial.source_cluster]
    class_id = act.denial.traffic_class or ""
    return json.dumps(
        [
            name
            for name in sorted(clusters)
            if all(policy.denies(source, class_id, name) for source in sources)
        ]
    )


def _problems(act: Act, situation: Situation) -> list[str]:
    problems = [*_expiry_problems(act, situation.now), *_bound_problems(act, situation.file)]
    if len(situation.acts()) >= MOST_IN_FORCE:
        problems.append(f"id: {MOST_IN_FORCE} acts are in force; end one of them first")
    if len(situation.kept) >= MOST_KEPT:
        problems.append(f"id: {MOST_KEPT} acts of the last days are kept, and no more are allowed")
    if act.denial is not None:
        problems += _denial_problems(act, act.denial, situation)
    return problems


def _expiry_problems(act: Act, now: datetime) -> list[str]:
    assert act.expires is not None  # only an `end` has none
    if now < act.expires <= now + MAXIMUM_LIFETIME:
        return []
    hours = MAXIMUM_LIFETIME.total_seconds() / 3600
    return [f"expires: {act.expires.isoformat()}; must be in the future, at most {hours:g} h from now"]


def _bound_problems(act: Act, file: Guardrails) -> list[str]:
    """Returns why the act would loosen the file, or contradicts it."""
    if act.act == "kill" and file.shadow:
        return ["act: kill; the guardrail file has shadow: true, under which nothing is published"]
    if act.parts is None:
        return []
    if act.act == "maximum_shift" and file.maximum_shift is not None and act.parts >= file.maximum_shift:
        return [f"parts: {act.parts}; must be below {file.maximum_shift}, the file's maximum_shift"]
    if act.act == "minimum_local_share" and act.parts <= file.minimum_local_share:
        return [
            f"parts: {act.parts}; must be above {file.minimum_local_share}, the file's minimum_local_share"
        ]
    return []


def _denial_problems(act: Act, denial: Denial, situation: Situation) -> list[str]:
    alone = Guardrails(denied_destinations=[denial])
    if problems := contract.check(alone, situation.topology):
        return [problem.replace("denied_destinations[0]", "denial") for problem in problems]
    composed, carried = situation.composed(act), Carried(situation.clusters)
    for known in situation.composed().denied_destinations:
        carried.add(known)
    if not carried.has_room(denial):
        return [f"denial: with it a cluster has over {names.VALUE_DENIALS_PER_CLUSTER} denials"]
    named = {known.traffic_class or "" for known in composed.denied_destinations}
    classes = named | {""} if denial.traffic_class is None else {denial.traffic_class}
    for source in situation.clusters:
        for class_id in sorted(classes):
            if denial.matches(source, class_id) and _all_denied(composed, source, class_id, situation):
                of = f" of {class_id!r}" if class_id else ""
                return [f"denial: with it every cluster is denied to requests{of} from {source!r}"]
    return []


def _all_denied(policy: Guardrails, source: str, class_id: str, situation: Situation) -> bool:
    return all(policy.denies(source, class_id, cluster) for cluster in situation.clusters)

"""Decides which rules without calls in telemetry are sent again unchanged, and why. Pure.

Such rules cost nothing, and a caller that resumes finds them in place. A caller with one request
each ten seconds makes none in most windows of the boards.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from spillway_contracts.guardrails import Guardrails

from spillway_optimizer.inputs.unknown import NOTHING, Pair, Unknown
from spillway_optimizer.judging.memories import REST
from spillway_optimizer.model.model import ApplicationModel, Model
from spillway_optimizer.problem.rules import RuleKey, Rules

KEEP_S = 600.0
NO_REQUESTS = f"no such calls are known now; a rule stays for {KEEP_S:g} s after the last"


@dataclass(frozen=True)
class Idle:
    """Rules in force without calls in telemetry.

    `since`: when calls were first known to be absent, Unix seconds. `why`: the reason why a rule
    stays. `unknown`: rules that stay because it is not known whether there are such calls.
    """

    since: Mapping[RuleKey, float] = field(default_factory=dict)
    why: Mapping[RuleKey, str] = field(default_factory=dict)
    unknown: frozenset[RuleKey] = frozenset()

    def after(
        self, in_force: Rules, decided: Collection[RuleKey], unknown: Unknown, policy: Guardrails, now: float
    ) -> "Idle":
        """Returns the state after a run.

        `decided`: rules that an application's own solve decides or holds. Rules that a pin or a
        denial covers are left to it.
        """
        pinned = {(pin.source_cluster, pin.source_service, pin.traffic_class) for pin in policy.pins}
        callers = _callers(in_force) if unknown != NOTHING else {}
        since, why, lost = {}, {}, set()
        for key, weights in in_force.items():
            if key in decided or key in pinned or _denied(policy, key, weights):
                continue
            if reason := _why_unknown(unknown, callers, (key.source_service, key.source_cluster)):
                why[key] = reason
                lost.add(key)
                continue
            since[key] = min(self.since.get(key, now), now)
            if now - since[key] < KEEP_S:
                why[key] = NO_REQUESTS
        return Idle(since, why, frozenset(lost))


def decided_of(model: Model, rules: Mapping[str, Rules]) -> frozenset[RuleKey]:
    """Returns the rules that the applications' own solves decide or hold.

    A refusal of the whole mesh holds all rules.
    """
    if model.mesh_refusals:
        return frozenset(key for some in rules.values() for key in some)
    return frozenset(
        key
        for a in model.applications
        for key in rules.get(a.name, ())
        if a.problem is None or key[1:] in a.routes
    )


def absent_of(
    model: Model,
    rules: Mapping[str, Rules],
    idle: Mapping[str, Mapping[RuleKey, str]],
    unknown: Collection[RuleKey],
) -> tuple[ApplicationModel, ...]:
    """Returns models of applications that have rules to keep but are absent from telemetry.

    They are held if it is not known whether they have requests, or if the whole mesh is held.
    """
    names = rules.keys() - {a.name for a in model.applications}
    if model.mesh_refusals:
        refusals = dict.fromkeys(names or ([] if model.applications else [REST]), model.mesh_refusals)
    else:
        lost = {n: [why for key, why in idle[n].items() if key in unknown] for n in names & idle.keys()}
        refusals = {name: tuple(whys[:1]) for name, whys in lost.items()}
    return tuple(ApplicationModel(name, frozenset(), None, why, ()) for name, why in sorted(refusals.items()))


def _denied(policy: Guardrails, key: RuleKey, weights: Iterable[str]) -> bool:
    """Returns whether a destination is denied.

    The publisher would refuse the whole ruleset for one such destination.
    """
    return any(policy.denies(key.source_cluster, key.class_id, cluster) for cluster in weights)


def _callers(in_force: Rules) -> Mapping[Pair, set[Pair]]:
    """Returns, for each (service, cluster), the pairs that call it by these rules."""
    found: dict[Pair, set[Pair]] = {}
    for key, weights in in_force.items():
        for cluster in weights:
            callee = key.class_id.partition(" ")[0], cluster
            found.setdefault(callee, set()).add((key.source_service, key.source_cluster))
    return found


def _why_unknown(unknown: Unknown, callers: Mapping[Pair, set[Pair]], place: Pair) -> str | None:
    """Returns why it is not known whether a place, a (service, cluster) pair, has requests.

    The place itself may be unknown, or a place whose requests lead to it. None: it is known.
    """
    seen, todo = {place}, [place]
    while todo:
        service, cluster = pair = todo.pop()
        if why := unknown.why(service, cluster):
            return f"{service!r} in {cluster!r} is unknown: {why}"
        new = callers.get(pair, set()) - seen
        seen |= new
        todo += sorted(new)
    return None

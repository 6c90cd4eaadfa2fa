"""`spillway explain`: explains one class and cluster as a JSON document with sentences."""

from dataclasses import asdict
from typing import Any

import numpy as np

from spillway_optimizer import OptimizerError
from spillway_optimizer.commands import sentences
from spillway_optimizer.commands.whatif_arguments import words
from spillway_optimizer.explain.explain import Route, callers, explain
from spillway_optimizer.explain.holding import why_not
from spillway_optimizer.explain.p99 import p99s
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.policies.projection import project
from spillway_optimizer.problem.destinations import in_steps
from spillway_optimizer.problem.objective import evaluate_shares
from spillway_optimizer.problem.problem import Problem
from spillway_optimizer.problem.rules import to_shares
from spillway_optimizer.process.progress import Progress
from spillway_optimizer.rulesets.integer_weights import integer_rules
from spillway_optimizer.sources.errors import InputError, in_lines, unknown
from spillway_optimizer.sources.situation import Now, Situation, now


def explained(of: Situation, class_id: str, cluster: str, rules: str, progress: Progress) -> dict[str, Any]:
    """Returns the document.

    Keys: class, cluster, source, what_if, rules (whose rules), rules_from, predicted, p99, notes,
    binding, routes. Raises InputError for a class or cluster that is not known, or if no calls of
    the class are routed from the cluster.
    """
    _check(of, class_id, cluster)
    today = now(of)
    problem, shares, binding, notes = _shares(of, rules, today, progress)
    with progress.step("pricing every shift"):
        routes = explain(problem, shares, class_id, cluster)
    if not routes:
        raise InputError(_no_route(of, class_id, cluster))
    evaluation = evaluate_shares(problem, shares)
    documents = []
    for route in routes:
        document = asdict(route)
        for destination in document["destinations"]:
            destination["share_now"] = _share_now(of, today, route, destination["cluster"])
        documents.append(document | {"words": sentences.of_route(document, evaluation.usd_per_hour)})
    return {
        "class": class_id,
        "cluster": cluster,
        "source": of.data.source,
        "what_if": words(of.what_if),
        "rules": rules,
        "rules_from": today.rules_from if rules == "now" else f"policy {rules}",
        "predicted": {
            "mean_latency_ms": evaluation.mean_latency_ms,
            "egress_usd_per_hour": evaluation.egress_usd_per_hour,
            "objective_usd_per_hour": evaluation.usd_per_hour,
        },
        "p99": [
            asdict(p99) | {"words": sentences.of_p99(asdict(p99))} for p99 in p99s(problem, shares, class_id)
        ],
        "notes": [*of.notes, *notes],
        "binding": list(binding),
        "routes": documents,
    }


def _shares(
    of: Situation, rules: str, today: Now, progress: Progress
) -> tuple[Problem, np.ndarray, tuple, tuple]:
    """Returns shares as proxies would apply them, what binds the solution, and its notes.

    The shares are merged and rounded. The problem has the steps that the solution takes.
    """
    if rules == "now":
        return of.problem, today.shares, (), ()
    try:
        with progress.step(f"solving {rules}"):
            solution = REGISTRY[rules]().route(of.problem)
        problem = in_steps(of.problem, solution.destinations)
        weights = integer_rules(problem, project(problem, solution))
        return problem, to_shares(problem, weights), solution.binding, solution.notes
    except OptimizerError as error:
        raise InputError(in_lines(f"{of.data.source}: policy {rules}", error)) from error


def _share_now(of: Situation, today: Now, route: Route, cluster: str) -> float | None:
    """Returns the destination's share by the rules in force. None if no rules are known."""
    if of.data.in_force is None:
        return None
    layout = of.problem.layout
    e = callers(of.problem, route.class_id)[route.source_service][0]
    return float(today.shares[e, layout.clusters.index(route.source_cluster), layout.clusters.index(cluster)])


def _check(of: Situation, class_id: str, cluster: str) -> None:
    """Raises InputError if the class or the cluster cannot be explained."""
    layout, wrong = of.problem.layout, []
    refusals = [
        refusal
        for application in of.model.applications
        if class_id.partition(" ")[0] in application.services
        for refusal in application.refusals
    ]
    if refusals:
        wrong += [f"CLASS: the rules of its application are held: {refusal}" for refusal in refusals]
    elif class_id not in layout.classes:
        wrong.append(
            f"CLASS: {class_id!r} is known to telemetry, but no request of users calls it now"
            if class_id in of.model.classes
            else unknown("CLASS", class_id, layout.classes)
        )
    if cluster not in layout.clusters:
        wrong.append(unknown("CLUSTER", cluster, layout.clusters))
    if wrong:
        raise InputError("\n".join(wrong))


def _no_route(of: Situation, class_id: str, cluster: str) -> str:
    """Returns why the class has no route from the cluster."""
    layout = of.problem.layout
    k, i = layout.classes.index(class_id), layout.clusters.index(cluster)
    edges = np.flatnonzero(layout.edge_target == k)
    if not len(edges):
        calls = sorted(layout.classes[layout.edge_target[e]] for e in layout.out_edges[k])
        return (
            f"CLASS: {class_id!r} is an entry: it is served where users enter, and not routed; "
            f"it calls {', '.join(calls) or 'nothing'}"
        )
    if layout.closed[edges, i].any():
        return f"CLUSTER: denials leave {class_id!r} from {cluster!r} nowhere to go; it is refused there"
    by = callers(of.problem, class_id)
    there = {s: found[0] for s, found in by.items() if layout.placed[layout.services.index(s), i]}
    if not there:
        return f"CLUSTER: none of the callers of {class_id!r} is in {cluster!r}: {', '.join(by)}"
    # A caller that cannot complete its requests gets none, so there is no split to explain.
    lines = []
    for service, e in there.items():
        lines.append(
            f"CLUSTER: {service} in {cluster!r} gets no calls, as it can reach {class_id!r} nowhere from there"
        )
        lines += [f"CLUSTER: {to}: {why_not(of.problem, e, i, j)}" for j, to in enumerate(layout.clusters)]
    return "\n".join(lines)

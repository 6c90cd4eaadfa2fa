"""Optimizer and publisher read the same guardrail file in the same way.

The publisher has nothing to change in what the optimizer proposes.
"""

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import Origin, Ruleset
from spillway_contracts import slices, topology
from spillway_contracts.guardrails import Denial, Guardrails, Pin, check
from spillway_optimizer.inputs import telemetry
from spillway_optimizer.model import model
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.problem.rules import TOTAL, of_ruleset
from spillway_optimizer.rulesets.assemble import Stamp, from_solution
from spillway_publisher.rules.checks import SECOND, Context
from spillway_publisher.rules.guardrails import decide

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGY = topology.load(ROOT / "contracts" / "golden" / "topology.yaml")
SERVICES = frozenset(service.name for service in TOPOLOGY.services)
CLUSTERS = [cluster.name for cluster in TOPOLOGY.clusters]
DOCUMENT = json.loads((ROOT / "optimizer" / "tests" / "unit" / "data" / "model.json").read_text())
TELEMETRY = telemetry.from_document(DOCUMENT)
NOW = 1767225631.0
ROUTES = [("gateway", "frontend GET /items/{id}"), ("frontend", "backend GET /items/{id}")]

cluster = st.sampled_from(CLUSTERS)
denials = st.builds(
    Denial,
    traffic_class=st.sampled_from([None, *(class_id for _, class_id in ROUTES)]),
    source_cluster=st.sampled_from([None, *CLUSTERS]),
    clusters=cluster.map(lambda name: [name]),
)
pins = st.builds(
    lambda source, route, share: Pin(
        source_cluster=source,
        source_service=route[0],
        traffic_class=route[1],
        destinations=dict(zip(CLUSTERS, (share, TOTAL - share), strict=True)),
    ),
    cluster,
    st.sampled_from([*ROUTES, ("shop", "backend GET /other")]),
    st.integers(0, TOTAL),
)
files = st.builds(
    Guardrails,
    maximum_shift=st.one_of(st.none(), st.integers(1, TOTAL)),
    minimum_local_share=st.integers(0, TOTAL),
    denied_destinations=st.lists(denials, max_size=2),
    pins=st.lists(pins, max_size=1),
    drained_clusters=st.lists(cluster, max_size=1),
    maximum_expiry_seconds=st.floats(121, 3600),
)


def _in_force(shares: list[int]) -> Ruleset:
    ruleset = Ruleset(id="before", version=7, origin=Origin.ORIGIN_OPTIMIZER, policy="spillway")
    ruleset.expires_at.FromMilliseconds(round((NOW + 60) * 1000))
    keys = [(source, *route) for source in CLUSTERS for route in ROUTES]
    for (source, service, class_id), share in zip(keys, shares, strict=True):
        name, method, path = class_id.split(" ")
        rule = ruleset.rules.add(source_cluster=source, source_service=service)
        rule.traffic_class.service, rule.traffic_class.method, rule.traffic_class.path_template = (
            name,
            method,
            path,
        )
        for to, weight in zip(CLUSTERS, (share, TOTAL - share), strict=True):
            if weight:
                rule.destinations.add(cluster=to, weight=weight)
    return ruleset


def _seen_alike(problem, key, guardrails: Guardrails, before, gone) -> bool:
    """Whether optimizer and publisher judge the route's own cluster and its current destinations
    alike.

    They can differ where the called service cannot make its own calls: the publisher does not know
    that and keeps requests there.
    """
    layout = problem.layout
    i = CLUSTERS.index(key.source_cluster)
    for e, target in enumerate(layout.edge_target):
        if layout.classes[target] == key.class_id:
            for to in {key.source_cluster, *before.get(key, {})}:
                barred = (
                    guardrails.denies(key.source_cluster, key.class_id, to)
                    or to in guardrails.drained_clusters
                    or (key.class_id.split(" ")[0], to) == gone
                )
                if not layout.usable[e, i, CLUSTERS.index(to)] and not barred:
                    return False
    return True


@settings(max_examples=60)
@given(
    guardrails=files,
    before=st.one_of(st.none(), st.lists(st.integers(0, TOTAL), min_size=4, max_size=4)),
    policy=st.sampled_from(["spillway", "local", "waterfall"]),
    gone=st.sampled_from([None, *((service, c) for service in ("frontend", "backend") for c in CLUSTERS)]),
)
def test_the_publisher_has_nothing_to_change(guardrails, before, policy, gone):
    """Denials, pins, minimum local share, maximum shift and draining are combined.

    They start from any rules in force or none, also when a service has lost its last live Envoy in
    a cluster.
    """
    assume(check(guardrails, TOPOLOGY) == [])
    in_force = None if before is None else _in_force(before)
    rules = None if in_force is None else of_ruleset(in_force)
    placement = {c: SERVICES - {gone[0]} if gone and gone[1] == c else SERVICES for c in CLUSTERS}
    changed = replace(TELEMETRY, placement=placement, left={gone: NOW} if gone else {})
    built = model.build(changed, TOPOLOGY, NOW, guardrails=guardrails, in_force=rules)
    assert built.problem is not None, built.refusals
    solution = REGISTRY[policy]().route(built.problem)
    stamp = Stamp("id", policy, Origin.ORIGIN_OPTIMIZER, built.window, NOW, 120.0, built.classes)
    ruleset = from_solution(built.problem, solution, stamp, TOPOLOGY).ruleset
    parts = {} if in_force is None else slices.cut(in_force, CLUSTERS, in_force.version)
    decision = decide(ruleset, Context(TOPOLOGY, guardrails, parts, int(NOW * SECOND), placement=placement))
    known = {
        key for key in of_ruleset(ruleset) if _seen_alike(built.problem, key, guardrails, rules or {}, gone)
    }
    # Where minimum local share and maximum shift disagree, the publisher raises and clamps the
    # weights to the proposed ones.
    assert decision.ruleset is not None, decision.reason
    published, proposed = of_ruleset(decision.ruleset), of_ruleset(ruleset)
    assert published.keys() == proposed.keys()
    assert {key: published[key] for key in known} == {key: proposed[key] for key in known}, decision.reason

"""Acts of operators: what they make of the guardrails, and which of them are accepted."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA, Ruleset
from spillway.v1.topology_pb2 import Topology
from spillway_contracts import ContractError, names, slices, traffic_class
from spillway_contracts.acts import Act, KeptAct
from spillway_contracts.bases import positive, rule_key
from spillway_contracts.guardrails import Denial, Guardrails, Pin, check
from spillway_publisher.commands import operator
from spillway_publisher.rules import acts
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide

CLASS = "shop GET /items/{id}"
TOTAL, SECOND = 10_000, 10**9
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_NS = int(NOW.timestamp()) * SECOND
LATER = NOW + timedelta(hours=1)
CLUSTERS = ["island", "north", "south"]


def act(kind: str = "freeze", **values) -> Act:
    known = {
        "id": f"{kind.replace('_', '-')}-1",
        "act": kind,
        "reason": "incident 42",
        "actor": "ada",
        "issuer": "os",
        "via": "operator",
        "expires": None if kind == "end" else LATER,
    }
    return Act(**(known | values))


def kept(*accepted: Act, **values) -> dict[str, KeptAct]:
    return {a.id: KeptAct(act=a, at=NOW, before="", after="", **values) for a in accepted}


def situation(topology: Topology, file: Guardrails | None = None, known=None) -> acts.Situation:
    return acts.Situation(topology, file or Guardrails(), known or {}, NOW)


# The contract


def test_an_act_survives_json():
    """What the command sends is what the publisher reads, a denial included."""
    for sent in (
        act("freeze"),
        act("deny", denial=Denial(traffic_class=CLASS, clusters=["south"])),
        act("maximum_shift", parts=500),
        act("end", ends="freeze-1"),
    ):
        assert Act.from_json(sent.to_json()) == sent
    (one,) = kept(act(), ended_by=act("end", ends="freeze-1"), ended_at=NOW).values()
    assert KeptAct.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reason": " "}, "reason: String should match"),
        ({"reason": None}, "reason: Input should be a valid string"),
        ({"id": "a.b"}, "id: String should match"),
        ({"act": "loosen"}, "act: Input should be 'freeze', 'kill'"),
        ({"parts": 5}, "parts: must not be there when act is freeze"),
        ({"act": "deny"}, "denial: must be there when act is deny"),
        ({"act": "maximum_shift", "parts": 0}, "parts: Input should be greater than or equal to 1"),
        ({"expires": None}, "expires: required"),
        ({"expires": "2026-03-01T13:00:00"}, "expires: Input should have timezone info"),
        ({"expires": "9000-03-01T13:00:00Z"}, "expires: must lie in the years 2000 to 2199"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
    ],
)
def test_what_breaks_the_contract_is_refused_by_key(change, says):
    """Unknown keys too: they may ask for something that would not be done."""
    document = json.loads(act().to_json()) | change
    with pytest.raises(ContractError, match=f"^{says}"):
        Act.from_json(json.dumps(document))


def test_a_message_that_is_too_long_is_not_parsed():
    with pytest.raises(ContractError, match="must be at most 16384"):
        Act.from_json(b" " * 20_000)


# The composition


def test_each_field_takes_the_stricter_of_file_and_acts():
    """Two acts of one kind: the stricter one counts."""
    file = Guardrails(maximum_shift=2000, minimum_local_share=1000)
    asked = [
        act("maximum_shift", parts=500),
        act("maximum_shift", parts=900, id="b"),
        act("minimum_local_share", parts=4000),
        act("deny", denial=Denial(clusters=["south"])),
        act("freeze"),
    ]
    composed = acts.compose(file, asked, NOW, CLUSTERS)
    assert (composed.maximum_shift, composed.minimum_local_share) == (500, 4000)
    assert composed.freeze and not composed.kill
    assert composed.denies("north", CLASS, "south") and not file.denies("north", CLASS, "south")


def test_acts_that_have_expired_have_no_effect():
    """At the moment of its expiry an act is over. Without any, the file's value itself is used."""
    file = Guardrails()
    assert acts.compose(file, [act("kill")], LATER, CLUSTERS) is file
    assert acts.compose(file, [act("kill")], LATER - timedelta(milliseconds=1), CLUSTERS).kill


def test_a_denial_takes_its_share_from_pins():
    """The rest of a pin is scaled. A pin without any other destination no longer applies."""
    pin = {"source_cluster": "north", "source_service": "web", "traffic_class": CLASS}
    file = Guardrails(pins=[Pin(**pin, destinations={"north": 2000, "south": 6000, "island": 2000})])
    denied = act("deny", denial=Denial(clusters=["south"]))
    (left,) = acts.compose(file, [denied], NOW, CLUSTERS).pins
    assert left.destinations == {"north": 5000, "island": 5000}
    file = Guardrails(pins=[Pin(**pin, destinations={"south": TOTAL})])
    assert acts.compose(file, [denied], NOW, CLUSTERS).pins == []
    elsewhere = act("deny", denial=Denial(source_cluster="south", clusters=["south"]))
    assert acts.compose(file, [elsewhere], NOW, CLUSTERS).pins == file.pins


def test_a_denial_of_a_cluster_that_has_left_the_topology_harms_no_ruleset():
    """What the topology still has of the act counts. It is named as not applied in full."""
    gone = act("deny", id="gone", denial=Denial(clusters=["west"]))
    part = act("deny", id="part", denial=Denial(clusters=["south", "west"]))
    source = act("deny", id="source", denial=Denial(source_cluster="west", clusters=["south"]))
    whole = act("deny", id="whole", denial=Denial(clusters=["island"]))
    asked = [gone, part, source, whole]
    composed = acts.compose(Guardrails(), asked, NOW, CLUSTERS)
    assert composed.denied_destinations == [Denial(clusters=["island"]), Denial(clusters=["south"])]
    assert check(composed, TOPOLOGY) == []
    assert acts.left_out(Guardrails(), asked, CLUSTERS) == ["gone", "part", "source"]


def test_a_denial_for_which_the_file_leaves_no_room_harms_no_ruleset():
    """The file got longer after the act was accepted. A ruleset with too many would be invalid."""
    most = names.VALUE_DENIALS_PER_CLUSTER
    full = [
        Denial(traffic_class=f"shop GET /{n}", source_cluster="north", clusters=["south"])
        for n in range(most)
    ]
    denied = act("deny", denial=Denial(source_cluster="north", traffic_class=CLASS, clusters=["south"]))
    fits = acts.compose(Guardrails(denied_destinations=full[1:]), [denied], NOW, CLUSTERS)
    assert denied.denial in fits.denied_destinations
    file = Guardrails(denied_destinations=full)
    assert acts.compose(file, [denied], NOW, CLUSTERS).denied_destinations == full
    assert acts.left_out(file, [denied], CLUSTERS) == [denied.id]


def _topology() -> Topology:
    topology = Topology()
    for name in CLUSTERS:
        topology.clusters.add(name=name, region=name)
    for source, destination in (("north", "south"), ("south", "north"), ("north", "island")):
        topology.links.add(source_cluster=source, destination_cluster=destination, rtt_ms=10)
    shop = topology.services.add(name="shop")
    for name in ("north", "south"):
        shop.placements.add(cluster=name)
    topology.services.add(name="web")
    return topology


TOPOLOGY = _topology()
share = st.integers(0, TOTAL)
denial = st.builds(
    Denial,
    source_cluster=st.sampled_from([None, "north", "south"]),
    traffic_class=st.sampled_from([None, CLASS]),
    clusters=st.sampled_from([["south"], ["island"], ["north"], ["island", "south"]]),
)
files = st.builds(
    Guardrails,
    maximum_shift=st.none() | st.integers(1, 5000),
    minimum_local_share=st.sampled_from([0, 1000, 6000]),
    kill=st.sampled_from([*[False] * 3, True]),
    freeze=st.booleans(),
    shadow=st.sampled_from([*[False] * 19, True]),
    drained_clusters=st.sampled_from([[], [], ["island"]]),
    denied_destinations=st.lists(denial, max_size=1),
    pins=st.lists(
        st.builds(
            lambda local: Pin(
                source_cluster="north",
                source_service="web",
                traffic_class=CLASS,
                destinations={"north": local, "island": TOTAL - local},
            ),
            share,
        ),
        max_size=1,
    ),
).filter(lambda policy: check(policy, TOPOLOGY) == [])


@st.composite
def many_acts(draw) -> list[Act]:
    found = []
    for i in range(draw(st.integers(0, 4))):
        kind = draw(
            st.sampled_from(["freeze", "kill", "deny", "deny", "maximum_shift", "minimum_local_share"])
        )
        target: dict = {"denial": draw(denial)} if kind == "deny" else {}
        if kind in ("maximum_shift", "minimum_local_share"):
            target = {"parts": draw(st.integers(1, TOTAL))}
        expires = draw(st.sampled_from([NOW - timedelta(seconds=1), LATER, LATER]))
        found.append(act(kind, id=f"a-{i}", expires=expires, **target))
    return found


def ruleset(origin, rules: dict, version: int = 0) -> Ruleset:
    made = Ruleset(id=f"p-{version}", origin=origin, policy="spillway", version=version)
    made.input_window.id = "w"
    made.created_at.FromNanoseconds(NOW_NS - (SECOND if version else 0))
    made.expires_at.FromNanoseconds(NOW_NS + 120 * SECOND)
    made.traffic_classes.append(traffic_class.parse(CLASS))
    for source, remote in sorted(rules.items()):
        if remote is None:
            continue
        rule = made.rules.add(source_cluster=source, source_service="web", reason="test")
        rule.traffic_class.CopyFrom(traffic_class.parse(CLASS))
        rule.destinations.add(cluster=source, weight=TOTAL - remote)
        rule.destinations.add(cluster="south" if source == "north" else "north", weight=remote)
    return made


few = st.sampled_from([0, 10, 3000, TOTAL]) | share
weights = st.fixed_dictionaries({"north": st.none() | few, "south": st.none() | few})
origins = st.sampled_from([ORIGIN_OPTIMIZER, ORIGIN_OPTIMIZER, ORIGIN_PAPA, ORIGIN_OPERATOR])


def context(policy: Guardrails, before: Ruleset | None) -> Context:
    parts = slices.cut(before, CLUSTERS, before.version) if before else {}
    return Context(TOPOLOGY, policy, parts, NOW_NS)


@settings(max_examples=1000, deadline=None)
@given(files, many_acts(), st.none() | weights, weights, origins, st.booleans())
def test_whatever_the_acts_they_allow_nothing_that_the_file_alone_refuses(
    file, asked, stored, proposed, origin, renews
):
    """Every refusal of the file stays, and what is published keeps the file's denials and shift.

    A denial that meets weights in force is left out here: those must leave at once, as they must
    when the file denies them, also where weights are frozen and further than a shift may be.
    """
    before = None if stored is None else ruleset(ORIGIN_OPTIMIZER, stored, version=NOW_NS // 10**6 - 1000)
    proposal = ruleset(origin, stored if renews and stored else proposed)
    if before is not None:
        proposal.base_version = before.version
    composed = acts.compose(file, asked, NOW, CLUSTERS)

    def newly_denied(source: str, destination: str) -> bool:
        return composed.denies(source, CLASS, destination) and not file.denies(source, CLASS, destination)

    for rule in before.rules if before else ():
        assume(not any(newly_denied(rule.source_cluster, to) for to in positive(rule)))
    published = decide(proposal, context(composed, before)).ruleset
    if published is None:
        return
    assert decide(proposal, context(file, before)).ruleset is not None
    stored_rules = {rule_key(rule): positive(rule) for rule in before.rules} if before else {}
    pinned = {(p.source_cluster, p.source_service, p.traffic_class) for p in composed.pins}
    for rule in published.rules:
        source, to = rule.source_cluster, positive(rule)
        if rule_key(rule) in pinned:
            assert not any(newly_denied(source, cluster) for cluster in to)
            continue
        assert not any(composed.denies(source, CLASS, cluster) for cluster in to)
        start = stored_rules.get(rule_key(rule), {source: TOTAL})
        moved = sum(max(0, weight - start.get(c, 0)) for c, weight in to.items())
        if origin != ORIGIN_OPERATOR and not any(composed.denies(source, CLASS, c) for c in start):
            assert moved <= (file.maximum_shift or TOTAL)


@settings(max_examples=200, deadline=None)
@given(files, many_acts(), st.randoms(use_true_random=False))
def test_the_order_of_acts_does_not_matter_and_expired_ones_neither(file, asked: list[Act], order):
    """Two publishers that read the acts in different orders decide alike."""
    shuffled = list(asked)
    order.shuffle(shuffled)
    composed = acts.compose(file, asked, NOW, CLUSTERS)
    assert acts.compose(file, shuffled, NOW, CLUSTERS) == composed
    assert acts.compose(file, [a for a in asked if a.expires > NOW], NOW, CLUSTERS) == composed
    assert acts.compose(composed, asked, NOW, CLUSTERS) == composed


@settings(max_examples=200, deadline=None)
@given(files, many_acts())
def test_each_field_is_at_least_as_strict_as_in_the_file(file, asked):
    """Fields that acts do not name are the file's."""
    composed = acts.compose(file, asked, NOW, CLUSTERS)
    assert composed.kill >= file.kill and composed.freeze >= file.freeze
    assert (composed.maximum_shift or TOTAL) <= (file.maximum_shift or TOTAL)
    assert composed.minimum_local_share >= file.minimum_local_share
    assert composed.denied_destinations[: len(file.denied_destinations)] == file.denied_destinations
    touched = {"kill", "freeze", "maximum_shift", "minimum_local_share", "denied_destinations", "pins"}
    assert composed.model_dump(exclude=touched) == file.model_dump(exclude=touched)


# Decisions


@pytest.mark.parametrize(
    ("asked", "file", "says"),
    [
        (act(via="console"), {}, "via: console; must be operator"),
        (act(expires=NOW), {}, "expires: 2026-03-01T12:00:00+00:00; must be in the future, at most 24 h"),
        (act(expires=NOW + timedelta(hours=25)), {}, "expires: 2026-03-02T13"),
        (act("kill"), {"shadow": True}, "act: kill; the guardrail file has shadow: true"),
        (act("maximum_shift", parts=2000), {"maximum_shift": 2000}, "parts: 2000; must be below 2000"),
        (act("minimum_local_share", parts=10), {"minimum_local_share": 10}, "parts: 10; must be above 10"),
        (
            act("deny", denial=Denial(clusters=["atlantis"])),
            {},
            "denial.clusters[0]: unknown cluster 'atlantis'; clusters: island, north, south",
        ),
        (
            act("deny", denial=Denial(traffic_class="gone GET /", clusters=["south"])),
            {},
            "denial.traffic_class: unknown service 'gone'",
        ),
        (
            act("deny", denial=Denial(clusters=["island", "north", "south"])),
            {},
            "denial: with it every cluster is denied to requests from 'island'",
        ),
        (
            act("deny", denial=Denial(clusters=["north"])),
            {
                "denied_destinations": [
                    Denial(traffic_class=CLASS, source_cluster="south", clusters=["island", "south"])
                ]
            },
            "denial: with it every cluster is denied to requests of 'shop GET /items/{id}' from 'south'",
        ),
        (act("end", ends="nothing"), {}, "ends: nothing: no such act is kept"),
    ],
)
def test_acts_are_refused_with_the_key_and_what_is_allowed(topology, asked, file, says):
    ruling = acts.decide(asked, "operator", situation(topology, Guardrails(**file)))
    assert ruling.refused is not None and ruling.refused.startswith(says)


def test_an_accepted_act_names_the_values_before_and_after_it(topology):
    """Other acts in force count towards both."""
    found = situation(topology, Guardrails(maximum_shift=2000), kept(act("maximum_shift", parts=900)))
    for asked, before, after in (
        (act("maximum_shift", id="b", parts=500), "900", "500"),
        (act("maximum_shift", id="b", parts=1500), "900", "900"),
        (act("freeze"), "false", "true"),
        (act("deny", denial=Denial(source_cluster="north", clusters=["south"])), "[]", '["south"]'),
    ):
        assert acts.decide(asked, "operator", found) == acts.Ruling(None, before, after)


def test_a_repeated_message_changes_nothing_and_an_id_is_used_once(topology):
    """NATS delivers an act again when a publisher dies before it has settled it."""
    known = kept(act())
    assert acts.decide(act(), "operator", situation(topology, None, known)).refused is None
    for other in (act(reason="other"), act("end", id="freeze-1", ends="freeze-1")):
        ruling = acts.decide(other, "operator", situation(topology, None, known))
        assert ruling.refused == "id: freeze-1: another act has it already"


def test_an_act_is_ended_once(topology):
    """A repetition of the same end is accepted. Another end, or a late one, is refused."""
    end, other = act("end", ends="freeze-1"), act("end", id="end-2", ends="freeze-1")
    known = kept(act())
    ruling = acts.decide(end, "operator", situation(topology, None, known))
    assert ruling == acts.Ruling(None, "true", "false", known["freeze-1"])
    ended = kept(act(), ended_by=end, ended_at=NOW)
    assert acts.decide(end, "operator", situation(topology, None, ended)).refused is None
    again = acts.decide(other, "operator", situation(topology, None, ended))
    assert again.refused == "ends: freeze-1: it has ended already"
    expired = kept(act(expires=NOW))
    late = acts.decide(end, "operator", situation(topology, None, expired))
    assert late.refused == "ends: freeze-1: it has expired"


def test_the_number_of_acts_is_bounded(topology):
    """Neither acts in force nor ended ones can fill the publisher's memory. Ending is possible."""
    many = kept(*(act(id=f"a-{i}") for i in range(acts.MOST_IN_FORCE)))
    found = situation(topology, None, many)
    assert "100 acts are in force" in (acts.decide(act(), "operator", found).refused or "")
    assert acts.decide(act("end", ends="a-7"), "operator", found).refused is None
    old = kept(*(act(id=f"a-{i}", expires=NOW) for i in range(acts.MOST_KEPT)))
    assert "1000 acts" in (acts.decide(act(), "operator", situation(topology, None, old)).refused or "")


def test_the_command_makes_an_act_and_says_how_to_undo_it():
    """Also of an act that changes nothing, because the file or another act says the same."""
    made = operator.act("deny", "fire", "ada", NOW, 60, denial={"clusters": ["south"]})
    assert (made.expires, made.via, made.issuer) == (NOW + timedelta(seconds=60), "operator", "os")
    (one,) = kept(made).values()
    assert f"act end {made.id} --reason" in operator.accepted(made, one)
    with pytest.raises(operator.OperatorError, match="denial.traffic_class"):
        operator.act("deny", "x", "ada", NOW, 60, denial={"clusters": ["a"], "traffic_class": "x"})


def test_the_list_shows_acts_in_force_and_on_request_the_others():
    end = act("end", ends="b", actor="grace")
    known = [
        *kept(act()).values(),
        *kept(act(id="b"), ended_by=end, ended_at=NOW).values(),
        *kept(act(id="c", expires=NOW)).values(),
    ]
    assert [row["id"] for row in operator.act_rows(known, NOW, False)] == ["freeze-1"]
    states = {row["id"]: (row["state"], row["ended_by"]) for row in operator.act_rows(known, NOW, True)}
    assert states == {"freeze-1": ("in force", ""), "b": ("ended", "grace"), "c": ("expired", "")}

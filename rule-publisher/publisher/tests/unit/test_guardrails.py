"""Decisions about proposals under each guardrail."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway.v1.ruleset_pb2 import ORIGIN_OPERATOR, ORIGIN_OPTIMIZER, ORIGIN_PAPA, Ruleset
from spillway_contracts import hold, names, slices
from spillway_contracts import ruleset as contract
from spillway_contracts.guardrails import Denial, Guardrails, Pin
from spillway_publisher.rules.checks import Context
from spillway_publisher.rules.guardrails import decide

CLASS = "shop GET /items/{id}"
NOW = time.time_ns()
HOLD_S = names.VALUE_HOLD_SECONDS


def split(ruleset: Ruleset, source: str) -> dict[str, int]:
    (rule,) = [rule for rule in ruleset.rules if rule.source_cluster == source]
    return {d.cluster: d.weight for d in rule.destinations}


@pytest.fixture
def ask(topology):
    """ask(proposal, in_force=..., resumed=..., **policy) -> Decision at NOW."""

    def decided(
        proposal, in_force: Ruleset | None = None, resumed=False, fences=None, placement=None, **policy
    ):
        clusters = [c.name for c in topology.clusters]
        parts = slices.cut(in_force, clusters, in_force.version) if in_force else {}
        guardrails = Guardrails(**policy)
        return decide(
            proposal, Context(topology, guardrails, parts, NOW, resumed, fences or {}, placement or {})
        )

    return decided


@pytest.fixture
def good(make):
    return make({"north": {"north": 4000, "south": 6000}}, now_ns=NOW)


def test_a_good_proposal_is_published_as_it_is(ask, good):
    """When no guardrail applies, nothing changes."""
    decision = ask(good)
    assert (decision.ruleset, decision.reason) == (good, "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: setattr(p, "version", 7), "version: 7; must be 0"),
        (lambda p: setattr(p, "id", ""), "id: empty"),
        (lambda p: setattr(p, "origin", 0), "origin: 0; must be one of ORIGIN_OPTIMIZER, ORIGIN_PAPA"),
        (lambda p: setattr(p, "origin", 99), "origin: 99; must be one of"),
        (lambda p: setattr(p.rules[0].destinations[0], "weight", 1), "weights sum to 6001; must be 10000"),
        (
            lambda p: setattr(p.rules[0], "source_cluster", "atlantis"),
            "unknown cluster 'atlantis'; clusters: island",
        ),
        (lambda p: setattr(p.traffic_classes[0], "method", "get it"), "traffic_classes[0]: traffic class"),
        (lambda p: setattr(p.created_at, "seconds", 2**62), "created_at:"),
        (lambda p: setattr(p.input_window.end, "seconds", 2**62), "input_window.end:"),
        (lambda p: setattr(p.input_window.start, "nanos", -5), "input_window.start:"),
        (
            lambda p: p.created_at.FromNanoseconds(NOW - 61 * 10**9),
            "created_at: 61.0 s ago; maximum_age_seconds",
        ),
        (
            lambda p: p.created_at.FromNanoseconds(NOW + 61 * 10**9),
            "created_at: 61.0 s ahead; maximum_age_seconds",
        ),
    ],
)
def test_what_breaks_the_contract_or_is_stale_is_refused_by_key(ask, good, change, says):
    """Each refusal names the key, the value and what is allowed."""
    change(good)
    decision = ask(good)
    assert decision.ruleset is None
    assert says in decision.reason


@given(st.binary(max_size=300))
@settings(max_examples=300)
def test_whatever_decodes_gets_a_decision(data):
    """No bytes make the pipeline raise."""
    from google.protobuf.message import DecodeError
    from spillway.v1.topology_pb2 import Topology

    try:
        proposal = Ruleset.FromString(data)
    except DecodeError:
        return
    policy = Guardrails(maximum_shift=1, minimum_local_share=1)
    assert decide(proposal, Context(Topology(), policy, {}, NOW)).ruleset is None


def test_expired_is_refused_even_when_resumed(ask, good):
    """After a crash the age no longer counts, but the expiry does."""
    good.created_at.FromNanoseconds(NOW - 100 * 10**9)
    assert ask(good).ruleset is None
    assert ask(good, resumed=True).ruleset is not None
    good.expires_at.FromNanoseconds(NOW - 10**9)
    assert "expires_at: 1.0 s ago; must be in the future" in ask(good, resumed=True).reason


def test_older_than_in_force_of_same_origin_is_refused(ask, make, good):
    """An overtaken proposal does not come back. The clock of another origin does not matter."""
    newer = make({}, now_ns=NOW + 10**9, version=4)
    assert "older than the same origin's ruleset in force" in ask(good, in_force=newer).reason
    newer.origin = ORIGIN_PAPA
    assert ask(good, in_force=newer).ruleset is not None


def test_shift_is_clamped_towards_the_proposal(ask, make, good):
    """The step from 100 % local is at most 1 000 parts, and rule and ruleset give the reason."""
    old = make({"north": {"north": 10_000}}, now_ns=NOW - 10**9, version=3)
    decision = ask(good, in_force=old, maximum_shift=1000)
    assert split(decision.ruleset, "north") == {"north": 9000, "south": 1000}
    assert decision.ruleset.rules[0].reason == "cheapest; maximum_shift: a shift of 6000 clamped to 1000"
    assert decision.reason == "maximum_shift: changed 1 of 1 rules"
    assert decision.ruleset.rules[0].destinations[1].predicted_compute_ms == 60  # the proposal's


def test_shift_counts_from_local_first_when_nothing_is_in_force(ask, make, good):
    """Without a rule, or after the hold of an expired one, relays serve local-first.

    So the first change is limited like any other.
    """
    assert split(ask(good, maximum_shift=500).ruleset, "north") == {"north": 9500, "south": 500}
    released = make({"north": {"south": 10_000}}, now_ns=NOW - (HOLD_S + 121) * 10**9, version=3)
    assert split(ask(good, in_force=released, maximum_shift=500).ruleset, "north") == {
        "north": 9500,
        "south": 500,
    }


def test_after_an_outage_an_unchanged_proposal_moves_nothing(ask, make):
    """Relays hold the weights of an expired ruleset.

    Clamping from other weights would cause the jump that it should prevent.
    """
    same = {"north": {"north": 2000, "south": 8000}}
    expired = make(same, now_ns=NOW - 200 * 10**9, version=3)
    decision = ask(make(same, now_ns=NOW), in_force=expired, maximum_shift=2000)
    assert (split(decision.ruleset, "north"), decision.reason) == (same["north"], "")


@pytest.mark.parametrize("before", [{"north": 2000, "south": 8000}, {"south": 10_000}])
def test_late_in_an_outage_the_shift_counts_from_what_relays_still_hold(ask, make, before):
    """Some shares have moved to the nearest cluster, even where the rule does not name it."""
    age_s = HOLD_S * 5 // 8
    kept = hold.kept_steps(age_s * 1000, HOLD_S * 1000, "north", "web")
    assert 0 < kept < names.VALUE_HOLD_STEPS
    expired = make({"north": before}, now_ns=NOW - (age_s + 120) * 10**9, version=3)
    away = before["south"] * kept // names.VALUE_HOLD_STEPS
    decision = ask(make({"north": before}, now_ns=NOW), in_force=expired, maximum_shift=100)
    assert split(decision.ruleset, "north") == {"north": 9900 - away, "south": away + 100}


def test_shift_from_where_nothing_is_placed_is_not_clamped(ask, make):
    """A service that is not in the cluster has no local-first to start from."""
    away = make({"north": {"island": 10_000}}, class_id="archive GET /", now_ns=NOW)
    assert split(ask(away, maximum_shift=1, minimum_local_share=5000).ruleset, "north") == {"island": 10_000}


def test_operator_moves_at_once(ask, good):
    """maximum_shift does not slow down a rollback. The audit stores the rollback's reason."""
    good.origin = ORIGIN_OPERATOR
    decision = ask(good, maximum_shift=1)
    assert split(decision.ruleset, "north") == {"north": 4000, "south": 6000}
    assert decision.reason == "cheapest"


def test_clamp_never_leaves_requests_at_a_denied_destination(ask, make):
    """A denial that is newer than the ruleset in force takes effect in one step."""
    old = make({"north": {"south": 10_000}}, now_ns=NOW - 10**9, version=3)
    new = make({"north": {"north": 10_000}}, now_ns=NOW)
    denied = [Denial(clusters=["south"])]
    assert split(ask(new, old, maximum_shift=100, denied_destinations=denied).ruleset, "north") == {
        "north": 10_000
    }


@pytest.mark.parametrize(
    ("denial", "refused"),
    [
        (Denial(traffic_class=CLASS, clusters=["south"]), True),
        (Denial(traffic_class=CLASS, source_cluster="north", clusters=["island", "south"]), True),
        (Denial(clusters=["south"]), True),
        (Denial(source_cluster="south", clusters=["south"]), False),
        (Denial(traffic_class="other GET /", clusters=["south"]), False),
        (Denial(clusters=["island"]), False),
    ],
)
def test_denied_destinations_refuse_the_whole_ruleset(ask, good, denial, refused):
    """Fails closed: one denied destination refuses everything. Unrelated denials refuse nothing."""
    decision = ask(good, denied_destinations=[denial])
    assert (decision.ruleset is None) == refused
    if refused:
        assert (
            f"rules[0].destinations: 'south' is a denied destination of {CLASS!r} from 'north'"
            in decision.reason
        )


def test_minimum_local_share_is_kept(ask, make):
    """Where the service is placed locally, the local share is raised, even if the rule omits it."""
    away = make({"north": {"south": 10_000}}, now_ns=NOW)
    decision = ask(away, minimum_local_share=2500)
    assert split(decision.ruleset, "north") == {"north": 2500, "south": 7500}
    assert "minimum_local_share: 0 raised to 2500" in decision.ruleset.rules[0].reason


def test_no_share_is_kept_where_no_envoy_of_the_service_lives_any_more(ask, make):
    """North's relays report only other services, so requests leave north at once.

    That holds whatever the topology says. Where relays are silent, the topology counts. A local
    share that the proposer gives is raised to the minimum all the same.
    """
    before = make({"north": {"north": 10_000}}, now_ns=NOW - 10**9, version=3)
    away = make({"north": {"south": 10_000}}, now_ns=NOW)
    guarded = {"maximum_shift": 2000, "minimum_local_share": 1000}
    gone, live = {"north": frozenset({"cart"})}, {"north": frozenset({"shop"})}
    for in_force in (None, before):
        decision = ask(away, in_force, placement=gone, **guarded)
        assert split(decision.ruleset, "north") == {"south": 10_000} and decision.reason == ""
        for known in (live, {}, {"south": frozenset()}):
            stays = split(ask(away, in_force, placement=known, **guarded).ruleset, "north")
            assert stays == {"north": 8000, "south": 2000}
    assert split(ask(away, placement=live, minimum_local_share=1000).ruleset, "north")["north"] == 1000
    given = make({"north": {"north": 500, "south": 9500}}, now_ns=NOW)
    assert split(ask(given, placement=gone, minimum_local_share=1000).ruleset, "north")["north"] == 1000


def test_pins_replace_and_add_rules(ask, make, good):
    """A pinned rule equals its pin, whether proposed or not, whatever the maximum shift."""
    pins = [
        Pin(source_cluster=source, source_service="web", traffic_class=CLASS, destinations={"south": 10_000})
        for source in ("north", "south")
    ]
    decision = ask(good, pins=pins, maximum_shift=1)
    assert split(decision.ruleset, "north") == split(decision.ruleset, "south") == {"south": 10_000}
    assert "pins: changed 2 of 2 rules" in decision.reason


def test_the_kill_switch_lets_local_first_through_only(ask, make, good):
    """The kill switch refuses all that leaves a cluster, even the operator's.

    Pins do not apply then.
    """
    pin = Pin(
        source_cluster="north", source_service="web", traffic_class=CLASS, destinations={"south": 10_000}
    )
    good.origin = ORIGIN_OPERATOR
    assert "kill: true" in ask(good, kill=True).reason
    local = make({"north": {"north": 10_000}, "south": {"south": 10_000, "north": 0}}, now_ns=NOW)
    assert ask(local, kill=True, pins=[pin]).ruleset == local
    assert ask(make({}, now_ns=NOW), kill=True).ruleset is not None


def test_shadow_publishes_nothing_and_says_what_it_would_have_done(ask, good):
    """In shadow mode all guardrails run, and nothing is published."""
    decision = ask(good, shadow=True, maximum_shift=100)
    assert decision.ruleset is None
    assert decision.reason == "shadow: true: computed, not published; maximum_shift: changed 1 of 1 rules"


def test_operators_ruleset_holds_until_it_expires(ask, make, good):
    """Otherwise the optimizer's next proposal would undo a rollback within seconds."""
    held = make({"north": {"north": 10_000}}, now_ns=NOW - 10**9, version=9, origin=ORIGIN_OPERATOR)
    assert "operator_hold: true: version 9 of origin ORIGIN_OPERATOR is in force" in ask(good, held).reason
    assert ask(good, held, operator_hold=False).ruleset is not None
    held.expires_at.FromNanoseconds(NOW - 1)
    assert ask(good, held).ruleset is not None


def test_expiry_is_cut(ask, good):
    """An expiry beyond the maximum is cut to the maximum, and the reason says so."""
    good.expires_at.FromSeconds(4_000_000_000)
    decision = ask(good, maximum_expiry_seconds=300)
    assert decision.ruleset.expires_at.ToNanoseconds() == NOW + 300 * 10**9
    assert decision.reason == "expires_at: cut to maximum_expiry_seconds 300"


WEIGHTS = st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)).map(sorted)


@given(a=WEIGHTS, b=WEIGHTS, maximum=st.integers(1, 10_000), minimum=st.integers(0, 10_000))
@settings(max_examples=100)
def test_every_published_ruleset_keeps_the_contract(topology_of, make_of, a, b, maximum, minimum):
    """Whatever guardrails do together, the result is a valid ruleset."""
    named = ("north", "south", "island")
    old, new = (
        make_of({"north": dict(zip(named, (x, y - x, 10_000 - y), strict=True))}, now_ns=NOW)
        for x, y in (a, b)
    )
    policy = Guardrails(maximum_shift=maximum, minimum_local_share=minimum)
    decision = decide(new, Context(topology_of, policy, slices.cut(old, named, 1), NOW))
    assert contract.check(decision.ruleset, topology_of) == []


@pytest.fixture(scope="module")
def topology_of():
    from spillway.v1.topology_pb2 import Topology

    topology = Topology()
    for name in ("north", "south", "island"):
        topology.clusters.add(name=name)
        if name != "north":
            topology.links.add(source_cluster="north", destination_cluster=name)
    return topology


@pytest.fixture(scope="module")
def make_of():
    from spillway.v1.ruleset_pb2 import ORIGIN_OPTIMIZER
    from spillway_contracts import traffic_class

    def build(rules, now_ns):
        proposal = Ruleset(id="p", origin=ORIGIN_OPTIMIZER, policy="spillway")
        proposal.input_window.id = "w"
        proposal.created_at.FromNanoseconds(now_ns)
        proposal.expires_at.FromNanoseconds(now_ns + 10**10)
        for source, weights in rules.items():
            rule = proposal.rules.add(source_cluster=source, source_service="web")
            rule.traffic_class.CopyFrom(traffic_class.parse(CLASS))
            for cluster, weight in weights.items():
                rule.destinations.add(cluster=cluster, weight=weight)
        return proposal

    return build


def test_a_leader_that_was_replaced_is_refused_whatever_it_says(ask, make):
    """A token below the newest of its origin belongs to an earlier leader.

    Each origin has its own tokens, and the operator has none. A proposal that already has its
    version is completed.
    """
    fences = {ORIGIN_OPTIMIZER: 7, ORIGIN_PAPA: 3}
    spread = {"north": {"north": 4000, "south": 6000}}

    def proposed(**fields):
        resumed = fields.pop("resumed", False)
        return ask(make(spread, now_ns=NOW, **fields), resumed=resumed, fences=fences)

    late = proposed(fencing_token=6)
    assert late.ruleset is None
    assert "fencing_token: 6 is of an earlier leader" in late.reason
    assert "must be at least 7, the newest token of ORIGIN_OPTIMIZER" in late.reason
    assert proposed().ruleset is None
    assert proposed(fencing_token=7).ruleset and proposed(fencing_token=8).ruleset
    assert proposed(fencing_token=4, origin=ORIGIN_PAPA).ruleset
    assert proposed(origin=ORIGIN_OPERATOR).ruleset
    assert proposed(fencing_token=6, resumed=True).ruleset


def test_a_drained_cluster_is_left_at_once_and_keeps_no_local_share(ask, make):
    """Neither minimum_local_share nor maximum_shift keeps requests in a drained cluster."""
    before = make({"north": {"north": 10_000}}, now_ns=NOW, version=3)
    away = make({"north": {"south": 10_000}}, now_ns=NOW)
    guarded = {"maximum_shift": 1000, "minimum_local_share": 2000}
    assert split(ask(away, before, **guarded).ruleset, "north") == {"north": 9000, "south": 1000}
    drained = ask(away, before, drained_clusters=["north"], **guarded)
    assert split(drained.ruleset, "north") == {"south": 10_000} and drained.reason == ""

"""When a version is in force at every Envoy, and who refused it."""

import pytest
from spillway.v1.acknowledgement_pb2 import OUTCOME_ACK, OUTCOME_NACK, Acknowledgement
from spillway_publisher.rules.answers import ROUTES, Answers, Refusal, fnv1a

WEB, CART = "north/web/0", "south/cart/0"
CONNECTED = {"north": frozenset([fnv1a(WEB)]), "south": frozenset([fnv1a(CART)]), "island": frozenset()}


def answer(envoy: str, version: int, at_s: int = 1, outcome: int = OUTCOME_ACK, type_url: str = ROUTES):
    made = Acknowledgement(
        cluster=envoy.partition("/")[0],
        envoy=envoy,
        ruleset_version=version,
        outcome=outcome,
        type_url=type_url,
    )
    made.at.FromSeconds(at_s)
    return made


def taken(*given: Acknowledgement) -> Answers:
    answers = Answers()
    for one in given:
        answers.take(one)
    return answers


@pytest.mark.parametrize(("text", "expected"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_envoys_have_the_hashes_of_heartbeats(text, expected):
    """The published vectors of FNV-1a, which the relay's hash/fnv has too."""
    assert fnv1a(text) == expected


def test_a_version_is_in_force_once_the_last_connected_envoy_has_its_routes():
    """Clusters and endpoints alone are not enough, and neither is an earlier version.

    The time is that of the last Envoy. A later version includes the earlier ones.
    """
    clusters = answer(CART, 9, 30, type_url="type.googleapis.com/envoy.config.cluster.v3.Cluster")
    answers = taken(answer(WEB, 9, 5), answer(CART, 8, 6), clusters)
    assert answers.since(9, CONNECTED) is None and answers.since(8, CONNECTED) == 6 * 10**9
    answers.take(answer(CART, 9, 7))
    answers.take(answer(CART, 8, 8))  # delivered late
    assert answers.since(9, CONNECTED) == 7 * 10**9
    answers.take(answer(WEB, 10, 9))
    assert answers.since(9, CONNECTED) == 9 * 10**9 and answers.since(10, CONNECTED) is None


def test_an_envoy_that_has_left_is_not_waited_for_and_a_new_one_is():
    """The connected Envoys count, in the cluster that names them. Without any, nothing is known."""
    answers = taken(answer(WEB, 9))
    assert answers.since(9, {"north": frozenset([fnv1a(WEB)])}) is not None
    assert answers.since(9, {"south": frozenset([fnv1a(WEB)])}) is None
    assert answers.since(9, CONNECTED) is None
    assert answers.since(9, {}) is None and answers.since(9, {"island": frozenset()}) is None


def test_refusals_count_for_their_version():
    """One of a version that nobody published harms no trial. Earlier ones are forgotten."""
    answers = taken(
        answer(WEB, 9, outcome=OUTCOME_NACK),
        answer(WEB, 8, outcome=OUTCOME_NACK),
        answer(CART, 8, outcome=OUTCOME_NACK),
    )
    assert answers.refused(9) == [Refusal("north", WEB, 9, "")]
    assert [refusal.envoy for refusal in answers.refused(8)] == [CART]
    answers.forget(9, CONNECTED)
    assert answers.refused(8) == [] and answers.refused(9) == [Refusal("north", WEB, 9, "")]


def test_an_envoy_that_takes_later_what_it_refused_has_not_refused_it():
    """In any order of arrival. What it takes of another type says nothing about the refused one."""
    refused, taken_later = answer(WEB, 9, 5, OUTCOME_NACK), answer(WEB, 9, 6)
    endpoints = answer(
        WEB, 9, 7, type_url="type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    )
    for given in ([refused, taken_later], [taken_later, refused]):
        assert taken(*given).refused(9) == []
    assert taken(refused, endpoints).refused(9) == [Refusal("north", WEB, 9, "")]
    assert taken(answer(WEB, 9, 4), refused).refused(9) == [Refusal("north", WEB, 9, "")]


def test_many_envoys_that_have_left_are_forgotten():
    """Pods come and go for years, and the memory of one process stays bounded."""
    answers = taken(*(answer(f"north/web/{n}", 9) for n in range(10_003)))
    answers.forget(9, CONNECTED)
    assert answers.since(9, {"north": frozenset([fnv1a("north/web/7")])}) is None
    assert answers.since(9, {"north": frozenset([fnv1a(WEB)])}) is not None

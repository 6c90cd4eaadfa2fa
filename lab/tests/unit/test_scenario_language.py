"""The scenario language beyond a constant load: matrices, phases, events, variants, time scale."""

import math
from pathlib import Path
from typing import get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spillway_lab.scenario import loads, scenario, variants
from spillway_lab.scenario.errors import InvalidInput
from spillway_lab.scenario.loads import Phase
from spillway_lab.scenario.variants import VARIANTS, Policy

LAB = Path(__file__).resolve().parents[2]
SHIPPED = LAB / "scenarios/two-clusters.yaml"


def document() -> dict:
    """The two-cluster scenario, without what other tests would change too."""
    found = yaml.safe_load(SHIPPED.read_text())
    found["application"] = str((SHIPPED.parent / found["application"]).resolve())
    found["load"]["measure"] = {
        "warm_up_seconds": 5,
        "measured_seconds": 60,
        "rps": {"west": 130, "east": 15},
    }
    for key in ("question", "repetitions", "time_scale", "events"):
        found.pop(key, None)
    return found


def read(tmp_path: Path, content: object) -> scenario.Scenario:
    path = tmp_path / "given.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return scenario.load(path)


def refused(tmp_path: Path, content: object) -> str:
    with pytest.raises(InvalidInput) as raised:
        read(tmp_path, content)
    return str(raised.value)


def test_old_files_have_the_defaults(tmp_path: Path) -> None:
    """A file without the new keys has three repetitions, no events and the machine's own time."""
    found = read(tmp_path, document()).document
    assert (found.repetitions, found.time_scale, found.events, found.question) == (3, 1.0, [], "")


def test_a_matrix_gives_both_directions(tmp_path: Path) -> None:
    """A pair in rtt_ms is a link each way. A price may be one number or differ by pair."""
    content = document() | {"links": [], "rtt_ms": {"west": {"east": 25}}, "egress_usd_per_gb": 0.02}
    links = read(tmp_path, content).links()
    assert [(x.source_cluster, x.destination_cluster, x.rtt_ms) for x in links] == [
        ("west", "east", 25),
        ("east", "west", 25),
    ]
    content["egress_usd_per_gb"] = {"west": {"east": 0.02}, "east": {"west": 0.08}}
    assert [x.egress_usd_per_gb for x in read(tmp_path, content).links()] == [0.02, 0.08]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rtt_ms": {"west": {"north": 1}}, "links": []}, "rtt_ms.west: unknown cluster 'north'"),
        ({"rtt_ms": {"north": {"west": 1}}, "links": []}, "rtt_ms: unknown cluster 'north'"),
        ({"rtt_ms": {"west": {"west": 1}}, "links": []}, "rtt_ms.west.west: of a cluster to itself"),
        ({"rtt_ms": {"west": {"east": 1}}}, "rtt_ms.west.east: is also in links"),
        ({"rtt_ms": {"west": {"east": 1}}, "links": []}, "egress_usd_per_gb: missing beside rtt_ms"),
        ({"egress_usd_per_gb": 1}, "egress_usd_per_gb: 1.0; allowed only beside rtt_ms"),
        ({"repetitions": 0}, "repetitions: Input should be greater than or equal to 1; got 0"),
        ({"time_scale": 0}, "time_scale: Input should be greater than or equal to 0.1; got 0"),
    ],
)
def test_mistakes_outside_events_are_named(tmp_path: Path, change: dict, expected: str) -> None:
    """A wrong matrix, price, repetition or scale is reported with its key and what is allowed."""
    assert expected in refused(tmp_path, document() | change)


BACKEND = {"service": "backend", "cluster": "west"}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"at_seconds": 60, "cluster": {"cluster": "west", "reachable": False}},
            "less than the measured 60 s",
        ),
        ({"at_seconds": 1}, "events.0: no kind; allowed: exactly one of link, service, cluster, replicas"),
        (
            {"at_seconds": 1, "cluster": {"cluster": "north", "reachable": False}},
            "events[0].cluster.cluster: unknown cluster 'north'; clusters: west, east",
        ),
        (
            {"at_seconds": 1, "service": BACKEND},
            "events.0.service: changes nothing; allowed: at least one of",
        ),
        (
            {"at_seconds": 1, "service": BACKEND | {"error_rate": 2}},
            "events.0.service.error_rate: Input should be",
        ),
        (
            {"at_seconds": 1, "service": BACKEND | {"speed": 0}},
            "events.0.service.speed: Input should be greater",
        ),
        (
            {"at_seconds": 1, "service": BACKEND | {"service": "cache", "speed": 1}},
            "events[0].service.service: unknown service 'cache'; services: gateway, frontend, backend",
        ),
        (
            {"at_seconds": 1, "replicas": {"service": "backend", "cluster": "north", "pods": 2}},
            "events[0].replicas.cluster: 'backend' is not placed in 'north'; allowed: west, east",
        ),
        ({"at_seconds": 1, "link": {"source_cluster": "west"}}, "rtt_ms, add_rtt_ms: allowed: exactly one"),
        ({"at_seconds": 1, "link": {"rtt_ms": 5}}, "source_cluster, destination_cluster: both missing"),
        (
            {"at_seconds": 1, "link": {"source_cluster": "west", "destination_cluster": "west", "rtt_ms": 5}},
            "events[0].link: matches no link; links: west to east, east to west",
        ),
    ],
)
def test_mistakes_in_events_are_named(tmp_path: Path, event: dict, expected: str) -> None:
    """A wrong event is reported with its position, key, value and what is allowed."""
    assert expected in refused(tmp_path, document() | {"events": [event]})


def test_a_link_event_may_mean_several_links(tmp_path: Path) -> None:
    """Without a source, the links from everywhere are meant, and the scenario's delay counts."""
    content = document() | {
        "events": [{"at_seconds": 1, "link": {"destination_cluster": "east", "add_rtt_ms": 150}}]
    }
    found = read(tmp_path, content)
    change = found.document.events[0].link
    changed = {
        (x.source_cluster, x.destination_cluster): change.after(x)
        for x in found.links()
        if change.changes(x.source_cluster, x.destination_cluster)
    }
    assert changed == {("west", "east"): 175}


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (
            {"warm_up_seconds": 1},
            "load.measure: measured_seconds: missing; allowed: measured_seconds and rps, or",
        ),
        ({"warm_up_seconds": 1, "measured_seconds": 5}, "load.measure: rps: missing"),
        (
            {"warm_up_seconds": 1, "rps": {}, "phases": [{"seconds": 1, "rps": {}}]},
            "load.measure: rps: {}; not allowed beside phases",
        ),
        ({"warm_up_seconds": 1, "phases": []}, "load.measure.phases: List should have at least 1 item"),
        (
            {"warm_up_seconds": 1, "phases": [{"seconds": 1, "rps": {}, "to_rps": {"north": 1}}]},
            "load.measure.phases[0].to_rps: unknown cluster 'north'",
        ),
        (
            {
                "warm_up_seconds": 1,
                "phases": [
                    {"seconds": 9, "rps": {}, "burst": {"every_seconds": 2, "seconds": 2, "factor": 2}}
                ],
            },
            "seconds: 2; allowed: less than every_seconds, which is 2",
        ),
    ],
)
def test_mistakes_in_the_load_are_named(tmp_path: Path, measure: dict, expected: str) -> None:
    """A measured load that is incomplete, or given twice, is reported with its key."""
    content = document()
    content["load"]["measure"] = measure
    assert expected in refused(tmp_path, content)


phases = st.builds(
    lambda seconds, rps, to, burst: Phase.model_validate(
        {
            "seconds": seconds,
            "rps": {"a": rps},
            "to_rps": None if to is None else {"a": to},
            "burst": burst
            and {"every_seconds": burst[0], "seconds": burst[0] * burst[1], "factor": burst[2]},
        }
    ),
    st.floats(0.5, 100),
    st.floats(0, 1000),
    st.none() | st.floats(0, 1000),
    st.none() | st.tuples(st.floats(0.5, 50), st.floats(0.01, 0.99), st.floats(0, 5)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(phases, min_size=1, max_size=4))
def test_pieces_are_as_long_as_their_phases_and_never_negative(plan: list[Phase]) -> None:
    """Whatever ramps and bursts there are, the pieces fill the time and no rate is below 0."""
    pieces = loads.segments(plan, "a")
    assert math.isclose(sum(x.seconds for x in pieces), sum(x.seconds for x in plan), rel_tol=1e-9)
    assert all(x.seconds > 0 and x.rps >= 0 and x.to_rps >= 0 for x in pieces)
    assert loads.segments(plan, "elsewhere") == [type(x)(x.seconds, 0.0, 0.0) for x in pieces]


def test_a_ramp_with_bursts_sends_what_can_be_worked_out() -> None:
    """From 0 to 10 a second in 10 s is 50 requests. Doubled in the first of every 5 s: 6 more."""
    ramp = {"seconds": 10, "rps": {"a": 0}, "to_rps": {"a": 10}}
    burst = {"every_seconds": 5, "seconds": 1, "factor": 2}
    assert sum(x.requests for x in loads.segments([Phase.model_validate(ramp)], "a")) == pytest.approx(50)
    with_bursts = Phase.model_validate(ramp | {"burst": burst})
    assert sum(x.requests for x in loads.segments([with_bursts], "a")) == pytest.approx(50 + 0.5 + 5.5)


def test_a_stretched_scenario_keeps_requests_and_utilisation(tmp_path: Path) -> None:
    """Time passes k times as slowly: the same requests, utilisation and prices."""
    content = document() | {
        "time_scale": 2.5,
        "events": [{"at_seconds": 10, "link": {"source_cluster": "west", "add_rtt_ms": 100}}],
    }
    given_ = read(tmp_path, content)
    slow = given_.live()
    before, after = given_.document, slow.document
    assert after.load.measure.seconds == 2.5 * before.load.measure.seconds
    assert after.load.measure.first_rps["west"] * 2.5 == before.load.measure.first_rps["west"]
    assert slow.threshold_rps("backend", "west") * 2.5 == given_.threshold_rps("backend", "west") == 66.5
    assert slow.links()[0].rtt_ms == 2.5 * given_.links()[0].rtt_ms
    assert (after.events[0].at_seconds, after.events[0].link.add_rtt_ms) == (25, 250)
    assert after.usd_per_ms_per_million_requests == pytest.approx(
        before.usd_per_ms_per_million_requests / 2.5
    )
    assert after.links[0].egress_usd_per_gb == before.links[0].egress_usd_per_gb
    of_backend = given_.application.services["backend"], slow.application.services["backend"]
    assert (
        of_backend[1].endpoints[0].service_time.mean_ms
        == 2.5 * of_backend[0].endpoints[0].service_time.mean_ms
    )
    assert of_backend[1].queue_timeout_ms == 2.5 * of_backend[0].queue_timeout_ms
    assert (of_backend[1].workers, of_backend[1].queue) == (of_backend[0].workers, of_backend[0].queue)
    assert slow.application.call_timeout_ms == 2.5 * given_.application.call_timeout_ms
    assert slow.live() == slow


def test_every_policy_is_live_or_says_why_not() -> None:
    """Each name has a variant. One that cannot be run live has a reason.

    Only `papa-only` has a policy of the optimizer too, by which it is simulated.
    """
    assert tuple(VARIANTS) == get_args(Policy)
    both = {name for name, variant in VARIANTS.items() if variant.refused and variant.optimizer}
    assert both == {"papa-only"}
    assert all(variant.refused or variant.optimizer for variant in VARIANTS.values())
    good, problems = variants.live(["spillway", "papa-only", "c3", "waterfall-worst-case"])
    assert good == ["spillway", "c3"]
    assert [p.split(": ")[1].split()[0] for p in problems] == ["'papa-only'", "'waterfall-worst-case'"]
    assert all("allowed: local, failover, waterfall, spillway, " in problem for problem in problems)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FULL = document() | {
    "question": "?",
    "repetitions": 2,
    "time_scale": 2,
    "links": [],
    "rtt_ms": {"west": {"east": 25}},
    "egress_usd_per_gb": {"west": {"east": 0.02}},
    "events": [
        {"at_seconds": 1, "link": {"source_cluster": "west", "rtt_ms": 5}},
        {"at_seconds": 2, "service": {"service": "backend", "cluster": "west", "speed": 0.5}},
        {"at_seconds": 3, "cluster": {"cluster": "west", "reachable": False}},
        {"at_seconds": 4, "replicas": {"service": "backend", "cluster": "west", "pods": 2}},
    ],
}
FULL["load"]["measure"] = {
    "warm_up_seconds": 1,
    "phases": [
        {
            "seconds": 9,
            "rps": {"west": 1},
            "to_rps": {"west": 2},
            "burst": {"every_seconds": 3, "seconds": 1, "factor": 2},
        }
    ],
}


def places_in(value: object, at: tuple = ()) -> list[tuple]:
    """Every place of a document: the keys and positions that lead there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at] + [place for key, one in inner for place in places_in(one, (*at, key))]


def test_the_full_document_is_valid(tmp_path: Path) -> None:
    """What the fuzz test starts from loads, and can be stretched."""
    assert read(tmp_path, FULL).live().document.load.measure.seconds == 18


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_document_is_more_than_refused(tmp_path_factory, data) -> None:
    """Any value anywhere either loads or gives errors that name the file. Nothing else happens."""
    content = yaml.safe_load(yaml.safe_dump(FULL))
    place = data.draw(st.sampled_from(places_in(content)))
    value = data.draw(VALUES)
    if not place:
        content = value
    else:
        *keys, last = place
        inner = content
        for key in keys:
            inner = inner[key]
        inner[last] = value
    path = tmp_path_factory.mktemp("fuzz") / "given.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    try:
        found = scenario.load(path)
    except InvalidInput as error:
        assert error.problems
        # An application's file that cannot be read is named as the document names it.
        named = (".yaml: ", "(document)", f"{path.parent}")
        assert all(any(name in problem for name in named) for problem in error.problems)
    else:
        assert found.live().links() is not None

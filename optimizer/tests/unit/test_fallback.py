"""An application without curves follows L3, alone and named in its rules, until they are back."""

import math

import pytest
from mesh import NOW, Mesh
from spillway_optimizer.solving.fallback import Fallback
from two_applications import OTHER


def without_curves(document):
    """Removes all curves and capacities of the other application."""
    for table in ("curves", "capacities"):
        document[table] = [row for row in document[table] if not row["service"].startswith(OTHER)]


@pytest.fixture
def mesh(settings, tmp_path):
    return Mesh(settings, tmp_path, policy="spillway", fallback="l3", fallback_solves=2)


def policies(mesh: Mesh) -> tuple[set[str], set[str]]:
    """Returns the policies that the rules name: of the first application, and of the other."""
    found = {True: set(), False: set()}
    for rule in mesh.sent[-1].rules:
        found[rule.traffic_class.service.startswith(OTHER)].add(rule.policy)
    return found[False], found[True]


async def test_only_the_application_that_lacks_curves_falls_back(mesh):
    """The ruleset is Spillway's, and the rules of the other application say that they are L3's."""
    rows = await mesh.solve(NOW, without_curves)
    (first,) = [name for name in rows if not name.startswith(OTHER)]
    (other,) = [name for name in rows if name.startswith(OTHER)]
    assert (rows[first]["policy"], rows[other]["policy"]) == ("spillway", "l3")
    assert rows[first]["mean_latency_ms"] > 0 and math.isnan(rows[other]["mean_latency_ms"])
    assert mesh.sent[-1].policy == "spillway"
    assert policies(mesh) == ({""}, {"l3"})


async def test_it_returns_after_enough_sound_solves_in_a_row(mesh):
    """One sound solve is not enough, and one without curves in between counts from the start."""
    names = []
    for number, change in enumerate((without_curves, None, without_curves, None, None, None)):
        rows = await mesh.solve(NOW + 60 * number, change)
        names.append(next(row["policy"] for name, row in rows.items() if name.startswith(OTHER)))
    assert names == ["l3", "l3", "l3", "l3", "spillway", "spillway"]
    assert policies(mesh) == ({""}, {""})


async def test_an_application_without_requests_does_not_return_by_that(mesh):
    """A model says nothing about it then: the sound solves that it needs are still to come."""

    def idle(document):
        for entries in document["demand"].values():
            for class_id in [c for c in entries if c.startswith(OTHER)]:
                del entries[class_id]

    await mesh.solve(NOW, without_curves)
    await mesh.solve(NOW + 60, idle)
    rows = await mesh.solve(NOW + 120)
    assert next(row["policy"] for name, row in rows.items() if name.startswith(OTHER)) == "l3"


async def test_a_renewal_keeps_saying_whose_rules_these_are(mesh):
    """Nothing changes, so both applications are renewed, by one ruleset."""
    for number in range(3):
        await mesh.solve(NOW + 60 * number, without_curves)
    assert mesh.sent[-1].policy == "spillway"
    assert policies(mesh) == ({""}, {"l3"})


def uncertain(error):
    """Gives the curves of the other application a standard error, relative to them."""

    def change(document):
        for row in document["curves"]:
            if row["service"].startswith(OTHER):
                row |= {"a_se_ms": error * row["a_ms"], "b_se_ms": error * row["b_ms"], "ab_correlation": 1.0}

    return change


async def test_an_application_whose_predictions_are_too_uncertain_falls_back(mesh, caplog):
    """The limit is half of the predicted time. It returns at 80 % of that, so chance between the
    two moves nothing. The log and its solves say which prediction it was.
    """
    names = []
    for number, error in enumerate((0.4, 0.6, 0.45, 0.45, 0.39, 0.39, 0.39)):
        rows = await mesh.solve(NOW + 60 * number, uncertain(error))
        name = next(name for name in rows if name.startswith(OTHER))
        names.append(rows[name]["policy"])
        if error > 0.5:
            assert any(
                "uncertain: 'stock" in note or f"uncertain: '{OTHER}" in note for note in rows[name]["notes"]
            )
    assert names == ["spillway", "l3", "l3", "l3", "l3", "spillway", "spillway"]
    assert "fell back to l3: " in caplog.text and "standard error of 60%" in caplog.text


@pytest.mark.parametrize("policy", ["waterfall", "c3"])
async def test_only_what_minimises_falls_back(mesh, policy):
    """An operator who sets a baseline gets it, also for an application that had fallen back."""
    await mesh.solve(NOW, without_curves)
    mesh.following.follow(policy)
    rows = await mesh.solve(NOW + 60, without_curves)
    assert {row["policy"] for row in rows.values()} == {policy}


async def test_by_default_the_rules_in_force_are_held(settings, tmp_path):
    """An operator who has not asked for it gets no policy that knows no prices."""
    mesh = Mesh(settings, tmp_path, policy="spillway")
    rows = await mesh.solve(NOW, without_curves)
    assert next(row["outcome"] for name, row in rows.items() if name.startswith(OTHER)) == "refused"


async def test_what_is_wrong_beside_a_missing_curve_is_refused_all_the_same(mesh):
    """Without the price of latency nothing can be compared, and L3 is no way around that."""
    mesh.topology.usd_per_ms_per_million_requests = 0
    rows = await mesh.solve(NOW, without_curves)
    assert {row["outcome"] for row in rows.values()} == {"refused"}


def test_a_fallback_must_be_a_policy_without_a_model(settings):
    with pytest.raises(ValueError, match=r"must be empty, or one of c3, l3, l3-peak"):
        settings(policy="spillway", fallback="waterfall")


def test_without_a_policy_nothing_falls_back():
    assert Fallback("", 3).of("any") == ""

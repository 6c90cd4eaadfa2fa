"""A watch compares a change with the time before it: harm is found, and noise is not."""

import random

import pytest
from judged import noisy, split, watched
from spillway_optimizer.judging.judging import Sample, Watch


def test_what_is_clearly_worse_is_found_within_a_minute():
    """Costs are twice those before and those predicted, under noise of a tenth.

    This is found seconds after the change has settled.
    """
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(5000), 100.0)
    end = watched(watch, at + 12.0, noisy(2, 60.0, 4))
    assert watch.trial.worse and end - at <= 60
    assert "in 10 before it, 30.0 predicted" in str(watch.trial)
    watch.rolled_back(end, "worse")
    assert not watch.may_roll_back(end + 599) and watch.may_roll_back(end + 600)
    assert "rolled back: worse" in watch.again(split(5200), end + 60, 100.0)
    assert watch.again(split(8000), end + 60, 100.0) is not None, "on the way there"
    assert watch.again(split(9500), end + 60, 100.0) is None, "another way"
    assert watch.again(split(5200), end + 60, 150.0) is None, "another load"
    assert watch.again(split(5200), end + 601, 100.0) is None, "tried again in time"


def test_noise_is_not_worse():
    """A change without effect, two hundred times.

    By design, at most one in a hundred may be judged worse.
    """
    worse = 0
    for seed in range(200):
        watch = Watch(600.0, 0.2)
        costs = noisy(seed, 30.0, 30, spread=0.25)
        at = watched(watch, 0.0, costs[:10])
        watch.changed(at, split(9000), split(5000), 100.0)
        watched(watch, at + 12.0, costs[10:])
        worse += watch.trial is not None and watch.trial.worse
    assert worse <= 2


@pytest.mark.parametrize(
    ("predicted", "demand"),
    [(60.0, 100.0), (30.0, 130.0)],
)
def test_what_was_predicted_and_what_is_of_another_load_is_no_harm(predicted, demand):
    """Requests are slower as predicted, because the load grew a little.

    Or the load moved, so that nothing can be compared.
    """
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(5000), 100.0)
    watched(watch, at + 12.0, noisy(2, 60.0, 10), predicted, demand)
    assert watch.trial is None or not watch.trial.worse


def test_a_model_that_is_wrong_before_and_after_is_no_harm():
    """Requests are always slower than predicted, and a little faster after the change."""
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 60.0, 10))
    watch.changed(at, split(9000), split(5000), 100.0)
    watched(watch, at + 12.0, noisy(2, 55.0, 12), predicted=20.0)
    assert not watch.trial.worse


def test_a_change_on_top_of_one_that_is_judged_is_judged_with_it():
    """A rollback restores the rules from before the first of the two."""
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(7000), 100.0)
    watch.changed(at + 6, split(7000), split(5000), 100.0)
    watched(watch, at + 18.0, noisy(2, 60.0, 5))
    assert watch.trial.worse and watch.trial.before == split(9000) and watch.trial.after == split(5000)


@pytest.mark.parametrize("quiet", [0, 30])
def test_steady_small_steps_are_judged_too(quiet):
    """A step every 20 s does harm: requests take ten times as long.

    They do so from the first step, or from one long after it. A rollback goes to the rules from
    before the first step of the trial.
    """
    watch, noise, west, harm = Watch(600.0, 0.2), random.Random(3), 9000, 0.0
    watched(watch, -60.0, noisy(1, 30.0, 10))
    for step in range(60):
        at = 20.0 * step
        if step == quiet:
            harm = at
        mean = 300.0 if step >= quiet else 30.0
        watch.changed(at, split(west), split(west - 50), 100.0)
        west -= 50
        for later in (5.0, 11.0, 17.0):
            watch.observe(Sample(at + later, mean * noise.lognormvariate(0.0, 0.1), 30.0, 100.0))
        if watch.trial is not None and watch.trial.worse:
            break
    assert watch.trial.worse and at - harm <= 120 and watch.trial.after == split(west)
    assert watch.trial.before == split(9000) or quiet


def test_samples_until_a_step_has_settled_are_left_out():
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(8900), 100.0)
    watched(watch, at + 12.0, [30.0, 31.0])
    watch.changed(at + 24, split(8900), split(8800), 100.0)
    watched(watch, at + 25.0, [900.0, 900.0])
    assert watch.trial.observed.after.count == 2
    watched(watch, at + 36.0, [30.0])
    assert watch.trial.observed.after.count == 3


def test_a_step_back_to_the_rules_of_before_ends_the_trial():
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(5000), 100.0)
    watched(watch, at + 12.0, [60.0, 60.0])
    watch.changed(at + 24, split(5000), split(9000), 100.0)
    assert watch.trial is None


def test_a_step_at_another_load_is_not_judged_with_those_before_it():
    watch = Watch(600.0, 0.2)
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(7000), 100.0)
    watched(watch, at + 12.0, [30.0, 31.0])
    watch.changed(at + 24, split(7000), split(5000), 150.0)
    assert watch.trial is None


def test_a_trial_ends_when_an_autoscaler_has_added_a_pod():
    """Costs of two numbers of pods do not compare. A place that is not known now is no change."""
    west, east = ("db", "west"), ("db", "east")
    watch = Watch(600.0, 0.2)
    watch.scaled({west: 4.0})
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, split(9000), split(5000), 100.0)
    for pods in ({west: 4.2}, {}, {west: 4.2, east: 2.0}, {west: 3.8}):
        watch.scaled(pods)
        assert watch.trial is not None
    watched(watch, at + 12.0, noisy(2, 60.0, 4))
    assert watch.trial.worse
    watch.scaled({west: 4.5})
    assert watch.trial is None and not watch.recent and watch.to_restore(split(5000), at + 60) is None

"""A watch rolls worse rules back, and refuses the way to them for a time."""

from judged import KEY, judged_worse, noisy, split, watched
from spillway_optimizer.judging.judging import Watch
from spillway_optimizer.problem.rules import RuleKey


def test_what_cannot_be_rolled_back_ends_its_trial_and_only_the_way_to_it_is_refused():
    """The worse rules stay in force until others are proposed.

    Only candidates that move towards the worse rules are refused.
    """
    watch, other = Watch(600.0, 0.2), RuleKey("east", "web", "db GET /x")
    worse = {**split(5000), other: {"east": 10_000}}
    end = judged_worse(watch, {**split(9000), other: {"east": 10_000}}, worse)
    assert watch.to_restore(worse, end) is not None
    watch.not_possible(end, "'west' is a denied destination")
    assert watch.trial is None
    third = {KEY: {"west": 5000, "third": 5000}, other: {"east": 10_000}}
    assert watch.again(third, end + 1, 100.0, worse) is None, "another destination"
    assert watch.again({**worse, other: {"third": 10_000}}, end + 1, 100.0, worse) is None, "another route"
    watch.changed(end + 1, worse, third, 100.0)
    why = watch.again(split(5200), end + 60, 100.0, third)
    assert why.startswith("worse than before 60 s ago") and "'west' is a denied destination" in why
    assert watch.again(split(5200), end + 601, 100.0, third) is None, "tried again in time"


def test_a_rollback_that_is_possible_again_is_made_while_nothing_else_was_proposed():
    watch = Watch(600.0, 0.2)
    end = judged_worse(watch, split(9000), split(5000))
    watch.not_possible(end, "held")
    rules, why = watch.to_restore(split(5000), end + 30)
    assert rules == split(9000) and why.startswith("rolled back: 6")
    watch.rolled_back(end + 30, why)
    assert not watch.may_roll_back(end + 60) and "rolled back" in watch.again(split(5000), end + 60, 100.0)
    for later, demand in ((601.0, 100.0), (30.0, 150.0)):
        watch = Watch(600.0, 0.2)
        end = judged_worse(watch, split(9000), split(5000))
        watch.not_possible(end, "held")
        watched(watch, end + later - 1, [60.0], demand=demand)
        assert watch.to_restore(split(5000), end + later) is None, "too late, or at another load"


def test_rules_that_are_worse_soon_after_a_rollback_refuse_the_way_to_both_and_nothing_else():
    """The second change may not be rolled back for ten minutes.

    Until then, a candidate that moves away from it is proposed: another destination, another route,
    less of the same, or the rules before it. More of it is refused, and so is a move towards the
    rules that were rolled back.
    """
    watch, other = Watch(600.0, 0.2), RuleKey("east", "web", "db GET /x")

    def rules(west, **more):
        return {KEY: {"west": west, "east": 10_000 - west}, other: {"east": 10_000}, **more}

    end = judged_worse(watch, rules(9000), rules(5000))
    watch.rolled_back(end, "worse")
    at = watched(watch, end, noisy(1, 30.0, 10))
    second = {**rules(9000), other: {"east": 4000, "third": 6000}}
    watch.changed(at, rules(9000), second, 100.0)
    now = watched(watch, at + 12.0, noisy(2, 60.0, 4))
    assert watch.trial.worse and watch.to_restore(second, now) is None and now < end + 600

    def refused(candidate, demand=100.0, in_force=second):
        return watch.again(candidate, now, demand, in_force)

    for better in ({"east": 10_000}, {"east": 7000, "third": 3000}, {"west": 10_000}):
        assert refused({**second, other: better}) is None, better
    assert refused({**second, KEY: {"third": 10_000}}) is None, "another route"
    assert "tried" in refused({**second, KEY: {"west": 6000, "east": 4000}}), "what was rolled back"
    assert "tried" in refused({**rules(6000), other: {"west": 10_000}}), "and leaves the second"
    # In force while the publisher moves in steps.
    part = {**second, other: {"east": 8000, "third": 2000}}
    assert "last rollback is too recent" in refused(second, in_force=part), "more of it"
    assert refused(second, 150.0, part) is None, "at another load"


def test_what_failed_on_one_route_is_refused_however_much_another_moves():
    watch, other = Watch(600.0, 0.2), RuleKey("west", "web", "cache GET /y")
    before = {**split(9000), other: {"west": 10_000}}
    after = {**split(5000), other: {"west": 9_990, "east": 10}}
    end = judged_worse(watch, before, after)
    watch.rolled_back(end, "worse")
    moved = {other: {"east": 10_000}}
    assert watch.again({**split(5000), **moved}, end + 10, 100.0, before) is not None
    assert watch.again({**split(9000), **moved}, end + 10, 100.0, before) is None
    assert watch.again({**split(8990), **moved}, end + 10, 100.0, before) is None, "rounding"
    assert watch.again({**split(9000), other: after[other]}, end + 10, 100.0, before) is None, "rounding"

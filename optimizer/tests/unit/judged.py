"""Rules and costs of one route that a watch judges."""

import random

from spillway_optimizer.judging.judging import Sample
from spillway_optimizer.problem.rules import RuleKey

KEY = RuleKey("west", "web", "db GET /x")
STEP_S = 6.0


def split(west):
    """Returns the rules that send `west` of 10 000 requests to west and the others to east."""
    return {KEY: {"west": west, "east": 10_000 - west}}


def watched(watch, start, costs, predicted=30.0, demand=100.0):
    """Makes the watch observe the costs, one per step. Returns the time of the next step."""
    for n, cost in enumerate(costs):
        watch.observe(Sample(start + STEP_S * n, cost, predicted, demand))
    return start + STEP_S * len(costs)


def noisy(seed, mean, count, spread=0.1):
    """Returns `count` random costs around `mean`."""
    r = random.Random(seed)
    return [mean * r.lognormvariate(0.0, spread) for _ in range(count)]


def judged_worse(watch, before, after):
    """Runs a trial of `after` that is judged worse. Returns the time of the verdict."""
    at = watched(watch, 0.0, noisy(1, 30.0, 10))
    watch.changed(at, before, after, 100.0)
    end = watched(watch, at + 12.0, noisy(2, 60.0, 4))
    assert watch.trial.worse
    return end

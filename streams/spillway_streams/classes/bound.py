"""Bounded cardinality: when a service has too many classes, only the most requested keep a name.

All other classes become `/other` for the time of a lease. When the lease ends, all classes are
observed again for a moment, so that a class that has become frequent can get a name.
"""

from collections.abc import Mapping

from spillway_streams.classes.memory import ClassMemory

_LOYALTY = 1.25  # factor on the rate of a class that has a name, so that names change less often
Key = tuple[str, str]  # method, template


def rates(live: Mapping[Key, ClassMemory], opened: float, now: float) -> dict[Key, float]:
    """Returns requests per second by class.

    Classes that were observed during the lease are measured since they were first remembered. New
    classes are measured since all were observed again (`opened`). `opened` and `now`: seconds of
    one clock.
    """
    since = max([opened, *([min(kept.since for kept in live.values())] if live else [])])
    return {key: kept.requests / max(now - min(kept.since, since), 1.0) for key, kept in live.items()}


def most_asked(asked: Mapping[Key, float], named_before: set[str], at_most: int) -> set[str]:
    """Returns the templates to name, the most requested first.

    Each template is named for all of its methods; together they make at most `at_most` classes.
    """
    total: dict[str, float] = {}
    methods: dict[str, int] = {}
    for (_, template), rate in asked.items():
        total[template] = total.get(template, 0.0) + rate * (_LOYALTY if template in named_before else 1.0)
        methods[template] = methods.get(template, 0) + 1
    named: set[str] = set()
    for template in sorted(total, key=lambda template: (-total[template], template)):
        if methods[template] <= at_most:
            at_most -= methods[template]
            named.add(template)
    return named

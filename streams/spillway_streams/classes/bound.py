"""Bounded cardinality: when a service has too many classes, the most asked-for ones are named and the rest is
`/other`, for a lease. When it ends everything is seen again for a moment, so that what became frequent gets in.
"""

from collections.abc import Mapping

from spillway_streams.classes.memory import ClassMemory

_LOYALTY = 1.25  # a class that was named needs less to stay than a new one to get in
Key = tuple[str, str]  # method, template


def rates(live: Mapping[Key, ClassMemory], opened: float, now: float) -> dict[Key, float]:
    """Requests per second. Classes that were seen through the lease are known for as long as they are remembered,
    new ones since all was seen again (`opened`): seconds of one clock, as is `now`."""
    since = max([opened, *([min(kept.since for kept in live.values())] if live else [])])
    return {key: kept.requests / max(now - min(kept.since, since), 1.0) for key, kept in live.items()}


def most_asked(asked: Mapping[Key, float], named_before: set[str], at_most: int) -> set[str]:
    """The templates to name: as many as make at most this many classes, since each is named for all methods."""
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

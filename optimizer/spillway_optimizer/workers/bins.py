"""How applications are distributed over worker processes. Pure."""

from collections.abc import Mapping, Sequence


def bins(sizes: Mapping[str, int], count: int) -> list[list[str]]:
    """Returns the names in at most `count` bins of similar size, none of them empty.

    Each name goes into the bin that is emptiest so far, the largest first.
    """
    filled = [0] * count
    names: list[list[str]] = [[] for _ in range(count)]
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        emptiest = filled.index(min(filled))
        names[emptiest].append(name)
        filled[emptiest] += sizes[name]
    return [found for found in names if found]


def shares(sizes: Mapping[str, int], names: Sequence[str]) -> dict[str, float]:
    """Returns each application's share of the time that its bin has."""
    total = sum(sizes[name] for name in names)
    return {name: sizes[name] / total for name in names}


def saving(took: Mapping[str, float], distributed: Sequence[Sequence[str]]) -> float:
    """Returns how much less the longest bin takes than all bins one after the other.

    `took`: time of each application's last solve. An unknown time saves nothing.
    """
    each = [sum(took.get(name, 0.0) for name in names) for names in distributed]
    return sum(each) - max(each, default=0.0)

"""Arithmetic on the weights of one rule: {cluster: parts of 10 000}, summing to 10 000. Pure."""

from collections.abc import Mapping

from spillway_contracts import names

TOTAL = names.VALUE_WEIGHT_TOTAL


def shift(base: Mapping[str, int], target: Mapping[str, int]) -> int:
    """Returns the parts of 10 000 that go to another cluster under `target` than under `base`."""
    return sum(
        max(0, target.get(cluster, 0) - base.get(cluster, 0)) for cluster in base.keys() | target.keys()
    )


def clamp(base: Mapping[str, int], target: Mapping[str, int], maximum: int) -> dict[str, int]:
    """Returns the point on the way from `base` to `target` that moves at most `maximum` parts.

    The result sums to 10 000 and lies between `base` and `target` in every cluster, never past the
    target. Clusters that end at 0 and that the target does not name are left out.
    """
    moved = shift(base, target)
    if moved <= maximum:
        return dict(target)
    clusters = sorted(base.keys() | target.keys())
    gains = {c: target.get(c, 0) - base.get(c, 0) for c in clusters}
    gained = _apportion({c: g for c, g in gains.items() if g > 0}, maximum)
    lost = _apportion({c: -g for c, g in gains.items() if g < 0}, maximum)
    result = {c: base.get(c, 0) + gained.get(c, 0) - lost.get(c, 0) for c in clusters}
    return {c: weight for c, weight in result.items() if weight or c in target}


def raise_local(weights: Mapping[str, int], local: str, minimum: int) -> dict[str, int]:
    """Returns weights with at least `minimum` for `local`, taken in proportion from others."""
    if weights.get(local, 0) >= minimum:
        return dict(weights)
    others = {c: w for c, w in weights.items() if c != local}
    return {**_apportion(others, TOTAL - minimum), local: minimum}


def scaled(weights: Mapping[str, int]) -> dict[str, int]:
    """Returns the weights in the same proportion, summing to 10 000; empty when all are 0."""
    return _apportion(weights, TOTAL)


def _apportion(shares: Mapping[str, int], total: int) -> dict[str, int]:
    """Returns integers in proportion to `shares` that sum to `total`.

    Uses the largest remainder method; ties are broken by name. With total <= sum(shares) no part
    exceeds its share, because only a fraction is rounded up.
    """
    whole = sum(shares.values())
    if not whole:
        return {}
    parts = {c: share * total // whole for c, share in shares.items()}
    remainders = sorted(shares, key=lambda c: (-(shares[c] * total % whole), c))
    for c in remainders[: total - sum(parts.values())]:
        parts[c] += 1
    return parts

"""Demand over the last few boards: an exponentially weighted mean, so noise moves no traffic."""

from collections.abc import Collection, Mapping

_GONE_RPS = 1e-3
Rates = Mapping[tuple[str, str], float]  # (cluster, class) -> rps


def smooth(
    before: Rates | None,
    observed: Rates,
    dt_s: float,
    half_life_s: float,
    jumped: Collection[tuple[str, str]] = (),
) -> Rates:
    """Returns the smoothed rates.

    Weights of past boards halve every `half_life_s`; 0 turns smoothing off. Rates that are no
    longer observed fade. Keys in `jumped` start again from what is observed.
    """
    if before is None or half_life_s <= 0:
        return dict(observed)
    keep = 0.5 ** (max(dt_s, 0.0) / half_life_s)
    before = {key: rps for key, rps in before.items() if key not in jumped}
    rates = {
        key: keep * before.get(key, observed.get(key, 0.0)) + (1 - keep) * observed.get(key, 0.0)
        for key in {*before, *observed}
    }
    return {key: rps for key, rps in sorted(rates.items()) if rps >= _GONE_RPS}

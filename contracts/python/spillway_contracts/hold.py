"""How relays hold the weights of an expired ruleset and give way to local-first in steps.

With hold H (seconds after expires_at), source cluster c and source service s:

    jitter = fnv1a64("c/s") mod 1024                      so that services do not move together
    begin  = H/4 + H/4 * jitter/1024                      until then all 16 sixteenths are kept
    kept   = 16 - floor(16 * (age - begin) / (H/2))       16..0; 0 from H on

    weight of each other destination = floor(weight * kept / 16)
    weight of the nearest            = 10 000 minus those

Times are whole milliseconds and divisions are floors, so that Go (relay) and Python (optimizer)
agree: golden/hold.json. Denied clusters and clusters without endpoints are removed before. Denials
do not decay.
"""

from collections.abc import Mapping

from spillway_contracts import names


def kept_steps(age_ms: int, hold_ms: int, source_cluster: str, source_service: str) -> int:
    """Returns how many of VALUE_HOLD_STEPS are kept when the ruleset expired age_ms ago.

    All are kept while age_ms is negative, which means before the expiry.
    """
    if age_ms < 0:
        return names.VALUE_HOLD_STEPS
    if age_ms >= hold_ms:
        return 0
    jitter = _fnv1a64(f"{source_cluster}/{source_service}".encode()) % 1024
    since = age_ms - hold_ms // 4 - hold_ms // 4 * jitter // 1024
    lost = names.VALUE_HOLD_STEPS * since // max(hold_ms // 2, 1)
    return min(max(names.VALUE_HOLD_STEPS - lost, 0), names.VALUE_HOLD_STEPS)


def decayed(weights: Mapping[str, int], nearest: str, kept: int) -> dict[str, int]:
    """Returns the weights with `kept` steps of each destination; the nearest gets the rest."""
    others = {c: w * kept // names.VALUE_HOLD_STEPS for c, w in weights.items() if c != nearest}
    made = {nearest: names.VALUE_WEIGHT_TOTAL - sum(others.values())} | others
    return {c: w for c, w in sorted(made.items()) if w}


def routed(
    weights: Mapping[str, int],
    nearest: str | None,
    source_cluster: str,
    source_service: str,
    age_ms: int,
    hold_ms: int = names.VALUE_HOLD_SECONDS * 1000,
) -> Mapping[str, int]:
    """Returns the weights that relays route by when the ruleset expired age_ms ago.

    Empty means local-first. If the nearest cluster is unknown, the weights stay until the hold
    ends. `hold_ms`: how long relays hold; by default VALUE_HOLD_SECONDS.
    """
    kept = kept_steps(age_ms, hold_ms, source_cluster, source_service)
    if kept == names.VALUE_HOLD_STEPS:
        return weights
    if not kept:
        return {}
    return weights if nearest is None else decayed(weights, nearest, kept)


def _fnv1a64(content: bytes) -> int:
    made = 0xCBF29CE484222325
    for byte in content:
        made = (made ^ byte) * 0x100000001B3 % 2**64
    return made

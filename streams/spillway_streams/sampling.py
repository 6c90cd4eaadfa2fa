"""Sampling probability in W3C tracestate, as OpenTelemetry's consistent probability sampling
writes it: member `ot`, sub-key `th`, up to 14 hex digits with trailing zeros dropped. A span is
kept when its 56 random bits are at least the threshold T, so its probability is 1 - T / 2^56 and
its adjusted count the inverse (OpenTelemetry specification, "TraceState: Probability Sampling").
"""

import re

_FULL = 1 << 56
_THRESHOLD = re.compile(r"[0-9a-f]{1,14}")


def adjusted_count(tracestate: str) -> float | None:
    """How many requests one span stands for: 1.0 without a threshold, None for a broken one."""
    for member in tracestate.split(","):
        key, _, value = member.strip().partition("=")
        if key != "ot":
            continue
        for pair in value.split(";"):
            name, _, threshold = pair.partition(":")
            if name == "th":
                if not _THRESHOLD.fullmatch(threshold):
                    return None
                return _FULL / (_FULL - int(threshold.ljust(14, "0"), 16))
    return 1.0


def tracestate(probability: float) -> str:
    """The tracestate of a trace that was kept with this probability in (0, 1]."""
    if not 0 < probability <= 1:
        raise ValueError(f"sampling probability {probability}: must be above 0 and at most 1")
    threshold = min(round((1 - probability) * _FULL), _FULL - 1)
    return f"ot=th:{f'{threshold:014x}'.rstrip('0') or '0'}"

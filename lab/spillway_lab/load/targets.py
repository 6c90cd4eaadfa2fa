"""What the load generator requests: vegeta's JSON targets, drawn from a scenario. Pure."""

import base64
import json
import random
import re
from collections.abc import Mapping, Sequence

from spillway_lab.render.pods import HOST, Plan
from spillway_lab.scenario.behaviour import Keys
from spillway_lab.scenario.scenario import Request, Scenario

_VARIABLE = re.compile(r"\{([^}]+)\}")
LINES = 1000
# vegeta repeats the list, so it is long enough to ask for most keys more than once
_LINES_PER_KEY, _MOST_LINES = 20, 50_000


def targets(
    scenario: Scenario, layout: Plan, cluster: str, count: int | None = None, seed: int = 1
) -> list[str]:
    """Returns vegeta's JSON lines for the users of one cluster.

    The scenario's requests appear in proportion to their shares and in random order. A path
    variable gets one of the application's keys for the cluster, as popular as the application says,
    or without such keys a random number. The entry service's pods take turns. vegeta repeats the
    list when it reaches the end. `count` is the number of lines; without it there are `LINES`, or
    more when there are many keys. The same arguments always give the same lines.
    """
    rng = random.Random(f"{seed}:{cluster}")
    keys = scenario.application.keys
    count = count or length(keys, cluster)
    values = _Values(keys, cluster, rng)
    lines = []
    requests = scenario.document.requests
    shares = [request.share_in(cluster) for request in requests]
    for request, times in zip(requests, apportion(shares, count), strict=True):
        ports = layout.entry_ports(request.service, cluster)
        lines += [_target(request, ports[i % len(ports)], values) for i in range(times) if ports]
    rng.shuffle(lines)
    return lines


def apportion(shares: Sequence[float], count: int) -> list[int]:
    """Splits `count` by shares: largest remainders, and at least one for each share above 0."""
    exact = [count * share / sum(shares) for share in shares]
    given = [int(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: given[i] - exact[i])
    for i in by_remainder[: count - sum(given)]:
        given[i] += 1
    return [max(1, n) if share else 0 for n, share in zip(given, shares, strict=True)]


def length(keys: Mapping[str, Keys], cluster: str) -> int:
    """Returns how many targets a list needs for the keys of a cluster's users."""
    most = max((each.of(cluster).count for each in keys.values()), default=0)
    return max(LINES, min(_MOST_LINES, _LINES_PER_KEY * most))


class _Values:
    """Draws values of path variables for the users of one cluster."""

    def __init__(self, keys: Mapping[str, Keys], cluster: str, rng: random.Random) -> None:
        self._rng = rng
        self._ranges = {variable: each.of(cluster) for variable, each in keys.items()}
        self._weights = {variable: each.cumulative(cluster) for variable, each in keys.items()}

    def draw(self, variable: str) -> str:
        if variable not in self._ranges:
            return str(self._rng.randint(1, 99_999))
        asked = self._ranges[variable]
        weights = self._weights[variable]
        return str(asked.first + self._rng.choices(range(asked.count), cum_weights=weights)[0])


def _target(request: Request, port: int, values: _Values) -> str:
    path = _VARIABLE.sub(lambda found: values.draw(found[1]), request.path)
    # The Host header names the service, as it does when a caller's proxy sends the request.
    target = {
        "method": request.method,
        "url": f"http://{HOST}:{port}{path}",
        "header": {"Host": [request.service]},
    }
    if request.request_bytes:
        target["body"] = base64.b64encode(b"x" * request.request_bytes).decode()
    return json.dumps(target)

"""What the load generator requests: vegeta's JSON targets, drawn from a scenario. Pure."""

import base64
import json
import random
import re

from spillway_lab.render.pods import HOST, Plan
from spillway_lab.scenario.scenario import Request, Scenario

_VARIABLE = re.compile(r"\{[^}]+\}")


def targets(scenario: Scenario, layout: Plan, cluster: str, count: int = 1000, seed: int = 1) -> list[str]:
    """Returns vegeta's JSON lines for the users of one cluster.

    The scenario's requests appear in proportion to their shares and in random order. Path variables
    get random values, and the entry service's pods take turns. vegeta repeats the list when it
    reaches the end. The same arguments always give the same lines.
    """
    rng = random.Random(f"{seed}:{cluster}")
    lines = []
    for request, times in zip(
        scenario.document.requests, apportion(scenario.document.requests, count), strict=True
    ):
        ports = layout.entry_ports(request.service, cluster)
        lines += [_target(request, ports[i % len(ports)], rng) for i in range(times) if ports]
    rng.shuffle(lines)
    return lines


def apportion(requests: list[Request], count: int) -> list[int]:
    """Splits `count` between the requests by share: largest remainders, and at least one each."""
    total = sum(request.share for request in requests)
    exact = [count * request.share / total for request in requests]
    given = [int(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: given[i] - exact[i])
    for i in by_remainder[: count - sum(given)]:
        given[i] += 1
    return [max(1, n) for n in given]


def _target(request: Request, port: int, rng: random.Random) -> str:
    path = _VARIABLE.sub(lambda _: str(rng.randint(1, 99_999)), request.path)
    # The Host header names the service, as it does when a caller's proxy sends the request.
    target = {
        "method": request.method,
        "url": f"http://{HOST}:{port}{path}",
        "header": {"Host": [request.service]},
    }
    if request.request_bytes:
        target["body"] = base64.b64encode(b"x" * request.request_bytes).decode()
    return json.dumps(target)

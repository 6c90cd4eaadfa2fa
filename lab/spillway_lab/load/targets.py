"""What the load generator asks for: vegeta's JSON targets, drawn from a scenario. Pure."""

import base64
import json
import random
import re

from spillway_lab.render.pods import HOST, Plan
from spillway_lab.scenario.scenario import Request, Scenario

_VARIABLE = re.compile(r"\{[^}]+\}")


def targets(scenario: Scenario, layout: Plan, cluster: str, count: int = 1000, seed: int = 1) -> list[str]:
    """JSON lines for the users of one cluster: the scenario's requests in proportion to their
    shares, in random order, with random values for path variables and the entry service's pods in
    turn. vegeta goes round them. The same arguments give the same lines."""
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
    """How many of `count` each request gets by its share: largest remainders, at least one each."""
    total = sum(request.share for request in requests)
    exact = [count * request.share / total for request in requests]
    given = [int(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: given[i] - exact[i])
    for i in by_remainder[: count - sum(given)]:
        given[i] += 1
    return [max(1, n) for n in given]


def _target(request: Request, port: int, rng: random.Random) -> str:
    path = _VARIABLE.sub(lambda _: str(rng.randint(1, 99_999)), request.path)
    # Host names the service, as a caller's proxy would.
    target = {
        "method": request.method,
        "url": f"http://{HOST}:{port}{path}",
        "header": {"Host": [request.service]},
    }
    if request.request_bytes:
        target["body"] = base64.b64encode(b"x" * request.request_bytes).decode()
    return json.dumps(target)

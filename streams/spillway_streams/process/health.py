"""The state of a job's dependencies, and the HTTP endpoint that reports it.

GET /healthz answers 200 while every dependency is in order, else 503. The body names the problems
and carries the job's counters and gauges. GET /metrics reports the same to Prometheus.
"""

import logging

from aiohttp import web
from spillway_contracts.metrics import CONTENT_TYPE, Exposition

from spillway_streams.process.counters import Counters

log = logging.getLogger("spillway.health")
KAFKA = "kafka"  # whether the brokers accept what is sent; CONSUMER is about reading
CONSUMER = "kafka consumer"


class Status:
    """State of each dependency. A change is logged once."""

    def __init__(self, *dependencies: str) -> None:
        self._problems = dict.fromkeys(dependencies, "not reached yet")

    def ok(self, dependency: str) -> None:
        """Notes that a dependency is in order."""
        if self._problems[dependency]:
            log.info("%s: in order", dependency)
        self._problems[dependency] = ""

    def failed(self, dependency: str, reason: object) -> None:
        """Notes that a dependency fails. Only the first failure in a row is logged."""
        if not self._problems[dependency] or self._problems[dependency] == "not reached yet":
            log.warning("%s: %s", dependency, reason)
        self._problems[dependency] = str(reason) or type(reason).__name__

    def problems(self) -> dict[str, str]:
        """Returns the reason of every dependency that is not in order."""
        return {name: problem for name, problem in self._problems.items() if problem}

    def up(self) -> dict[str, bool]:
        """Returns for each dependency whether it is in order."""
        return {name: not problem for name, problem in self._problems.items()}


async def serve(
    address: tuple[str, int], status: Status, counters: Counters, exposition: Exposition
) -> web.AppRunner:
    """Starts the endpoint. Call cleanup() on the returned runner to stop it."""

    async def healthz(_: web.Request) -> web.Response:
        problems = status.problems()
        body = {
            "ready": not problems,
            "problems": problems,
            "counters": counters.snapshot(),
            "gauges": counters.gauges(),
        }
        return web.json_response(body, status=503 if problems else 200)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition.text(), headers={"Content-Type": CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, *address, shutdown_timeout=0.5).start()
    return runner

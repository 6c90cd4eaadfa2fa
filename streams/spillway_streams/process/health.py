"""What a job depends on, and the HTTP endpoint that says so.

GET /healthz answers 200 once every dependency is in order, else 503; the body names what is not
and carries the job's counters and gauges. GET /metrics is the same for Prometheus.
"""

import logging

from aiohttp import web
from spillway_contracts.metrics import CONTENT_TYPE, Exposition

from spillway_streams.process.counters import Counters

log = logging.getLogger("spillway.health")
KAFKA = "kafka"  # as far as it takes what is sent
CONSUMER = "kafka consumer"


class Status:
    """State of each dependency; a change is logged once."""

    def __init__(self, *dependencies: str) -> None:
        self._problems = dict.fromkeys(dependencies, "not reached yet")

    def ok(self, dependency: str) -> None:
        if self._problems[dependency]:
            log.info("%s: in order", dependency)
        self._problems[dependency] = ""

    def failed(self, dependency: str, reason: object) -> None:
        if not self._problems[dependency] or self._problems[dependency] == "not reached yet":
            log.warning("%s: %s", dependency, reason)
        self._problems[dependency] = str(reason) or type(reason).__name__

    def problems(self) -> dict[str, str]:
        return {name: problem for name, problem in self._problems.items() if problem}

    def up(self) -> dict[str, bool]:
        """Of each dependency, whether it is in order."""
        return {name: not problem for name, problem in self._problems.items()}


async def serve(
    address: tuple[str, int], status: Status, counters: Counters, exposition: Exposition
) -> web.AppRunner:
    """Starts the endpoint; call cleanup() on what it returns."""

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

"""The HTTP endpoint of a job, with the answers of spillway_runtime.health.

It runs in the job's own event loop, so a loop that hangs does not answer, and the job is restarted.
"""

from collections.abc import Callable, Mapping

from aiohttp import web
from spillway_runtime.health import Report, answer
from spillway_runtime.metrics import Exposition
from spillway_runtime.settings import address
from spillway_runtime.status import Status

from spillway_streams.process.counters import Counters

KAFKA = "kafka"  # whether the brokers accept what is sent; CONSUMER is about reading
CONSUMER = "kafka consumer"


async def serve(listen: str, status: Status, counters: Counters, exposition: Exposition) -> web.AppRunner:
    """Starts the endpoint on host:port. Call cleanup() on the returned runner to stop it."""

    def report() -> Report:
        return Report(status.problems(), status.degraded(), counters.snapshot(), counters.gauges())

    return await _start(listen, report, exposition)


async def serve_all(listen: str, jobs: Mapping[str, Status]) -> web.AppRunner:
    """Starts the endpoint of a process with several jobs, given as the status of each.

    The process is ready when all its jobs are. A problem has the job's name before it.
    """

    def report() -> Report:
        return Report(_named(jobs, Status.problems), _named(jobs, Status.degraded))

    return await _start(listen, report, None)


def _named(jobs: Mapping[str, Status], of: Callable[[Status], Mapping[str, str]]) -> dict[str, str]:
    return {f"{job}: {name}": why for job, status in jobs.items() for name, why in of(status).items()}


async def _start(listen: str, report: Callable[[], Report], exposition: Exposition | None) -> web.AppRunner:
    async def get(request: web.Request) -> web.Response:
        found = answer(request.path, report, exposition)
        headers = {"Content-Type": found.content_type}
        return web.Response(status=found.status, body=found.body, headers=headers)

    app = web.Application()
    app.router.add_get("/{path:.*}", get)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, *address(listen)).start()
    return runner

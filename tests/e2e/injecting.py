"""How each fault of the matrix begins and ends.

Processes stop, freeze or restart, and connections close or slow down.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
from loop_harness import EXPORTS, Loop
from spillway_lab.render.pods import HOST

WEST, EAST = "west", "east"
Act = Callable[[Loop], None]
Steps = tuple[Act, Act]  # how a fault begins, and how it is healed


def nothing(_: Loop) -> None:
    """Does nothing."""


def stop(*processes: str) -> Steps:
    """Kills all processes at once with SIGKILL and keeps them away. Healing starts them."""

    def inject(loop: Loop) -> None:
        supervisor = loop.stack.supervisor
        pids = [found.pid for name, found in supervisor.processes().items() if name in processes]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

        def keep_away(process: str) -> None:
            # If the process has just died, the supervisor waits some seconds for an end that has
            # already happened, and then answers 400.
            with contextlib.suppress(httpx.HTTPStatusError):
                supervisor.stop_process(process)

        with ThreadPoolExecutor(len(processes)) as pool:
            list(pool.map(keep_away, processes))

    def heal(loop: Loop) -> None:
        for process in processes:
            loop.stack.supervisor.start_process(process)

    return inject, heal


def crash(process: str) -> Steps:
    """Kills the process with SIGKILL. The supervisor starts it again."""
    return lambda loop: loop.stack.supervisor.kill(process), nothing


def restart(process: str) -> Steps:
    """Ends the process in an orderly way (SIGTERM) and starts it again."""
    return lambda loop: loop.stack.supervisor.restart_process(process), nothing


def freeze(*processes: str) -> Steps:
    """Sends SIGSTOP: connections stay open and nothing answers. Healing sends SIGCONT."""

    def send(number: int) -> Act:
        def act(loop: Loop) -> None:
            found = loop.stack.supervisor.processes()
            for process in processes:
                os.kill(found[process].pid, number)

        return act

    return send(signal.SIGSTOP), send(signal.SIGCONT)


def exports_stop() -> Steps:
    """Closes the proxy between one Envoy and its collector. Healing opens it."""

    def enable(enabled: bool) -> Act:
        return lambda loop: toxiproxy(loop, "POST", EXPORTS, {"enabled": enabled})

    return enable(False), enable(True)


def exports_reset() -> Steps:
    """Cuts the Envoy's connection, which may be opened again at once."""
    close, open_again = exports_stop()

    def inject(loop: Loop) -> None:
        close(loop)
        open_again(loop)

    return inject, nothing


def exports_slow(latency_ms: int) -> Steps:
    return _latency(lambda _: [EXPORTS], latency_ms)


def far(cluster: str, latency_ms: int) -> Steps:
    """Adds latency to all connections into a cluster."""
    return _latency(lambda loop: _ways(loop, cluster), latency_ms)


def lose(cluster: str) -> Steps:
    """Closes all connections into the cluster and kills everything that runs there."""

    def processes(loop: Loop) -> list[str]:
        pods = [pod.name for pod in loop.stack.plan.pods if pod.cluster == cluster]
        return [*loop.stack.relays(cluster), f"collector-{cluster}", *pods, *(f"{pod}-envoy" for pod in pods)]

    def inject(loop: Loop) -> None:
        stop("wan")[0](loop)  # the keeper would open the connections again
        for way in _ways(loop, cluster):
            toxiproxy(loop, "POST", way, {"enabled": False})
        stop(*processes(loop))[0](loop)

    def heal(loop: Loop) -> None:
        stop(*processes(loop), "wan")[1](loop)

    return inject, heal


def repeated(act: Act, seconds: float) -> Act:
    """Repeats an action once a second for `seconds`."""

    def inject(loop: Loop) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            act(loop)
            time.sleep(1)

    return inject


def toxiproxy(loop: Loop, method: str, path: str, body: dict | None = None) -> None:
    url = f"http://{HOST}:{loop.stack.port('toxiproxy')}/proxies/{path}"
    httpx.request(method, url, json=body, trust_env=False).raise_for_status()


def _ways(loop: Loop, cluster: str) -> list[str]:
    return [way.name for way in loop.stack.plan.wan if way.destination_cluster == cluster]


def _latency(proxies: Callable[[Loop], list[str]], latency_ms: int) -> Steps:
    toxic = {"name": "slow", "type": "latency", "attributes": {"latency": latency_ms}}

    def inject(loop: Loop) -> None:
        for proxy in proxies(loop):
            toxiproxy(loop, "POST", f"{proxy}/toxics", toxic)

    def heal(loop: Loop) -> None:
        for proxy in proxies(loop):
            toxiproxy(loop, "DELETE", f"{proxy}/toxics/slow")

    return inject, heal

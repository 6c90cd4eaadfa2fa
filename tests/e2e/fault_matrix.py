"""The fault matrix as data: how each fault begins and ends, what is not known meanwhile, and when all is back."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
import nats
from loop_harness import EXPORTS, Loop
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spillway.v1.heartbeat_pb2 import Heartbeat
from spillway_contracts import names
from spillway_lab.pods import HOST

WEST, EAST = "west", "east"
_TTL_FOR_EVER = 2**32 - 1


@dataclass(frozen=True)
class Fault:
    """`unknown`: clusters of which nothing is known meanwhile. `lost`: clusters that go with their users, and with the
    requests that are inside them at that moment.
    `placed`: the placement's key must never be absent."""

    name: str
    inject: Callable[[Loop], None]
    heal: Callable[[Loop], None]
    away_s: float
    back_s: float
    unknown: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    placed: bool = field(default=True)


def stop(*processes: str) -> tuple[Callable[[Loop], None], Callable[[Loop], None]]:
    """kill -9 of all at once, absence, start."""

    def inject(loop: Loop) -> None:
        supervisor = loop.stack.supervisor
        pids = [found.pid for name, found in supervisor.processes().items() if name in processes]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

        def keep_away(process: str) -> None:
            # Asked in the moment of a process's death, the supervisor waits some seconds for an end that it has seen: 400.
            with contextlib.suppress(httpx.HTTPStatusError):
                supervisor.stop_process(process)

        with ThreadPoolExecutor(len(processes)) as pool:
            list(pool.map(keep_away, processes))

    def heal(loop: Loop) -> None:
        for process in processes:
            loop.stack.supervisor.start_process(process)

    return inject, heal


def restart(process: str) -> tuple[Callable[[Loop], None], Callable[[Loop], None]]:
    """kill -9; the supervisor starts it again."""
    return lambda loop: loop.stack.supervisor.kill(process), _nothing


def freeze(process: str) -> tuple[Callable[[Loop], None], Callable[[Loop], None]]:
    """SIGSTOP: connections stay open and nothing answers."""

    def send(number: int) -> Callable[[Loop], None]:
        return lambda loop: os.kill(loop.stack.supervisor.processes()[process].pid, number)

    return send(signal.SIGSTOP), send(signal.SIGCONT)


def exports(latency_ms: int | None = None) -> tuple[Callable[[Loop], None], Callable[[Loop], None]]:
    """What stands between one Envoy and its collector is closed or, with a latency, slow."""

    def inject(loop: Loop) -> None:
        if latency_ms is None:
            _toxiproxy(loop, "POST", EXPORTS, {"enabled": False})
        else:
            toxic = {"name": "slow", "type": "latency", "attributes": {"latency": latency_ms}}
            _toxiproxy(loop, "POST", f"{EXPORTS}/toxics", toxic)

    def heal(loop: Loop) -> None:
        if latency_ms is None:
            _toxiproxy(loop, "POST", EXPORTS, {"enabled": True})
        else:
            _toxiproxy(loop, "DELETE", f"{EXPORTS}/toxics/slow")

    return inject, heal


def lose(cluster: str) -> tuple[Callable[[Loop], None], Callable[[Loop], None]]:
    """No way leads into the cluster any more, and all that runs there is killed."""

    def processes(loop: Loop) -> list[str]:
        pods = [pod.name for pod in loop.stack.plan.pods if pod.cluster == cluster]
        return [*loop.stack.relays(cluster), f"collector-{cluster}", *pods, *(f"{pod}-envoy" for pod in pods)]

    def inject(loop: Loop) -> None:
        stop("wan")[0](loop)  # which would open the ways again
        for way in loop.stack.plan.wan:
            if way.destination_cluster == cluster:
                _toxiproxy(loop, "POST", way.name, {"enabled": False})
        stop(*processes(loop))[0](loop)

    def heal(loop: Loop) -> None:
        stop(*processes(loop), "wan")[1](loop)

    return inject, heal


def _toxiproxy(loop: Loop, method: str, path: str, body: dict | None = None) -> None:
    url = f"http://{HOST}:{loop.stack.port('toxiproxy')}/proxies/{path}"
    httpx.request(method, url, json=body, trust_env=False).raise_for_status()


def _nothing(_: Loop) -> None:
    pass


def lying_relay(loop: Loop) -> None:
    """Whoever holds a relay's password says that all services left, for ever, in the far future, as another relay."""
    import asyncio

    async def lie() -> None:
        connection = await nats.connect(
            loop.stack.nats_url(names.NATS_USER_RELAY.format(cluster=WEST)),
            inbox_prefix=names.NATS_INBOX_RELAY.format(cluster=WEST),
        )
        for relay, ttl_s in (("", 10), (f"relay-{WEST}", 10), ("liar", _TTL_FOR_EVER), ("a b", 10)):
            beat = Heartbeat(cluster=WEST, relay=relay, ttl_seconds=ttl_s)
            beat.at.FromSeconds(int(time.time()) + 86_400)
            await connection.publish(
                names.NATS_SUBJECT_HEARTBEATS.format(cluster=WEST), beat.SerializeToString()
            )
        await connection.flush()
        await connection.close()

    asyncio.run(lie())


def lying_spans(loop: Loop) -> None:
    """East's sender claims to be west, with durations of an hour, from the past and the future."""
    now = time.time_ns()
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    for key, value in ((names.SPAN_ATTRIBUTE_CLUSTER, WEST), (names.SPAN_ATTRIBUTE_SERVICE, "backend")):
        resource.resource.attributes.add(key=key).value.string_value = value
    for n in range(50):
        end = now + (n - 25) * 3600 * 10**9
        span = resource.scope_spans.add().spans.add(
            trace_id=os.urandom(16), span_id=os.urandom(8), kind=2, name="GET",
            start_time_unix_nano=end - 3600 * 10**9, end_time_unix_nano=end,
        )  # fmt: skip
        span.attributes.add(key=names.SPAN_ATTRIBUTE_CLASS).value.string_value = "backend GET /items/{id}"
    port = loop.stack.cluster_ports[EAST]["OTLP_HTTP_PORT"]
    httpx.post(
        f"https://{HOST}:{port}/v1/traces",
        content=request.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
        verify=loop.sender(EAST),
        trust_env=False,
    ).raise_for_status()


FAULTS = [
    Fault("relay, stopped", *stop(f"relay-{WEST}"), away_s=6, back_s=45),
    Fault("relay, slow", *freeze(f"relay-{WEST}-2"), away_s=12, back_s=45),
    Fault("relay, lying", lying_relay, _nothing, away_s=4, back_s=45),
    Fault("collector, stopped", *stop(f"collector-{WEST}"), away_s=12, back_s=60, unknown=(WEST,)),
    Fault("collector, slow", *freeze(f"collector-{WEST}"), away_s=12, back_s=60, unknown=(WEST,)),
    Fault("collector, lied to", lying_spans, _nothing, away_s=4, back_s=45),
    Fault("worker, restarted", *restart("streams-exclusive"), away_s=2, back_s=60, unknown=(WEST, EAST)),
    Fault("worker, slow", *freeze("streams-exclusive"), away_s=12, back_s=60, unknown=(WEST, EAST)),
    Fault("Kafka, stopped", *stop("kafka"), away_s=6, back_s=60, unknown=(WEST, EAST)),
    Fault("Redis, stopped", *stop("redis"), away_s=6, back_s=60, placed=False),
    Fault("ClickHouse, stopped", *stop("clickhouse"), away_s=6, back_s=60),
    Fault("NATS, stopped", *stop("nats"), away_s=6, back_s=60, placed=False),
    Fault("optimizer, stopped", *stop("optimizer"), away_s=6, back_s=60),
    Fault("one Envoy's exports, stopped", *exports(), away_s=12, back_s=45),
    Fault("one Envoy's exports, slow", *exports(latency_ms=8000), away_s=12, back_s=45),
    Fault("region, lost", *lose(EAST), away_s=15, back_s=90, lost=(EAST,), unknown=(EAST,)),
]

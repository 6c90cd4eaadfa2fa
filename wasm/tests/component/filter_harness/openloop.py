"""An application that holds requests, and an open-loop client that records its requests."""

import asyncio
import random
import re
import threading
import time
from dataclasses import dataclass

from filter_harness.client import traced


class HoldingApp:
    """Answers `/…?hold=<ms>` after that many milliseconds, on an event loop of its own.

    It can hold thousands of requests at once. `inside` maps each trace to two monotonic times: when
    its request was read, and just before its answer was written. The request was surely inside
    between them.
    """

    def __init__(self, port: int) -> None:
        self.inside: dict[str, tuple[float, float]] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        serve = asyncio.start_server(self._serve, "127.0.0.1", port, backlog=1024)
        self._server = asyncio.run_coroutine_threadsafe(serve, self._loop).result(5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                read = time.monotonic()
                hold = head.split(" ", 2)[1].partition("hold=")[2]
                await asyncio.sleep(int(hold or 0) / 1000)
                if trace := re.search(r"traceparent: 00-(\w+)", head):
                    self.inside[trace[1]] = (read, time.monotonic())
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _close(self) -> None:
        self._server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)


@dataclass
class Record:
    """One request as the client saw it; times are seconds of one monotonic clock."""

    trace: str
    kind: str
    sent: float
    done: float = float("inf")


@dataclass(frozen=True)
class Flow:
    """Poisson arrivals of one kind of request: `rate` per second."""

    kind: str
    method: str
    path: str
    rate: float
    hold_ms: int


def arrivals(flows: tuple[Flow, ...], seconds: float, seed: int) -> list[tuple[float, Flow]]:
    """Returns the due time in seconds of each request, independent of earlier responses."""
    draw, out = random.Random(seed), []
    for flow in flows:
        at = draw.expovariate(flow.rate)
        while at < seconds:
            out.append((at, flow))
            at += draw.expovariate(flow.rate)
    return sorted(out, key=lambda arrival: arrival[0])


async def _request(port: int, flow: Flow, due: float, records: list[Record]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    trace, _, headers = traced()
    # The connection exists already, so the recorded time is that of the request itself.
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    record = Record(trace, flow.kind, time.monotonic())
    records.append(record)
    head = f"{flow.method} {flow.path}?hold={flow.hold_ms} HTTP/1.1\r\nhost: cart\r\n"
    writer.write(f"{head}traceparent: {headers['traceparent']}\r\ncontent-length: 0\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\nok")
    record.done = time.monotonic()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer


async def _all(port: int, schedule: list[tuple[float, Flow]]) -> list[Record]:
    records: list[Record] = []
    start, tasks = time.monotonic() + 0.3, []
    for at, flow in schedule:
        await asyncio.sleep(max(0.0, start + at - 0.2 - time.monotonic()))
        tasks.append(asyncio.create_task(_request(port, flow, start + at, records)))
    await asyncio.gather(*tasks)
    return records


def drive(port: int, flows: tuple[Flow, ...], seconds: float, seed: int) -> list[Record]:
    """Sends every request when it is due. Returns the records in the order of sending."""
    records = asyncio.run(_all(port, arrivals(flows, seconds, seed)))
    return sorted(records, key=lambda record: record.sent)

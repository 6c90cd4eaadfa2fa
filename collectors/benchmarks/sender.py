"""Sends serialised batches over several OTLP/gRPC connections, as fast as they are answered or at a
constant rate.

Run as a process of its own, so that its CPU is not the collector's: prints one JSON object.
"""

import argparse
import itertools
import json
import sys
import threading
import time
from pathlib import Path

import grpc
import payload
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "component"))

from trace_exports import OWN_CONNECTION, TRACE_EXPORT

OPTIONS = [OWN_CONNECTION, ("grpc.max_send_message_length", -1)]
RETRYABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}


class Sender:
    """Sends batches until `count` are accepted.

    One thread per connection calls `send`. Threads share the batches by ticket numbers.
    """

    def __init__(self, address: str, batches: list[bytes], count: int, interval_s: float) -> None:
        self._address, self._batches, self._count, self._interval_s = address, batches, count, interval_s
        self._tickets = itertools.count()
        self._began = time.perf_counter()
        self.latencies: list[float] = []
        self.refused = 0

    def send(self) -> None:
        with grpc.insecure_channel(self._address, OPTIONS) as channel:
            export = channel.unary_unary(TRACE_EXPORT)
            while (ticket := next(self._tickets)) < self._count:
                due = self._began + ticket * self._interval_s
                if (wait := due - time.perf_counter()) > 0:
                    time.sleep(wait)
                began = due if self._interval_s else time.perf_counter()
                self._until_accepted(export, self._batches[ticket % len(self._batches)])
                self.latencies.append(time.perf_counter() - began)

    def _until_accepted(self, export, batch: bytes) -> None:
        while True:
            try:
                answer = ExportTraceServiceResponse.FromString(export(batch, timeout=30, wait_for_ready=True))
            except grpc.RpcError as error:
                if error.code() not in RETRYABLE:
                    raise
                self.refused += 1
                time.sleep(0.1)
                continue
            if answer.partial_success.rejected_spans:
                raise RuntimeError(f"the collector rejected spans: {answer}")
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--spans-per-s", type=float, default=0.0, help="0: as fast as they are answered")
    arguments = parser.parse_args()
    different = payload.batches(min(64, arguments.batches))
    sys.stdin.readline()  # the load is ready and waits for the start signal
    interval_s = payload.SPANS / arguments.spans_per_s if arguments.spans_per_s else 0.0
    sender = Sender(arguments.address, different, arguments.batches, interval_s)
    cpu, began = time.process_time(), time.perf_counter()
    threads = [threading.Thread(target=sender.send) for _ in range(arguments.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    print(
        json.dumps(
            {
                "sent": len(sender.latencies),
                "refused": sender.refused,
                "wall_s": wall,
                "cpu_share": (time.process_time() - cpu) / wall,
                "latencies_s": sender.latencies,
            }
        )
    )


if __name__ == "__main__":
    main()

"""A gRPC application without generated code: requests and answers are bytes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc

SERVICE = "shop.v1.Cart"


class Handlers(grpc.GenericRpcHandler):
    """The application's methods, with one gRPC outcome each."""

    def __init__(self) -> None:
        self.stop = threading.Event()

    def service(self, details):
        method = details.method.rpartition("/")[2]
        unary = {"Add": self.add, "Find": self.find, "Break": self.fail, "Wait": self.wait}
        if method in unary:
            return grpc.unary_unary_rpc_method_handler(unary[method])
        return grpc.unary_stream_rpc_method_handler(self.watch) if method == "Watch" else None

    def add(self, request: bytes, _context) -> bytes:
        return request

    def find(self, _request: bytes, context) -> bytes:
        context.abort(grpc.StatusCode.NOT_FOUND, "no such cart")

    def fail(self, _request: bytes, context) -> bytes:
        context.abort(grpc.StatusCode.UNAVAILABLE, "broken")

    def wait(self, request: bytes, _context) -> bytes:
        """Waits until the application stops, whether or not the caller is still connected."""
        self.stop.wait(60)
        return request

    def watch(self, request: bytes, context):
        """Sends three messages, then an error in the trailers."""
        for _ in range(3):
            yield request
        context.abort(grpc.StatusCode.DATA_LOSS, "half of it")


class RpcApp:
    """The gRPC application, listening on a port."""

    def __init__(self, port: int) -> None:
        self.handlers = Handlers()
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=[self.handlers])
        if self._server.add_insecure_port(f"127.0.0.1:{port}") != port:
            raise OSError(f"port {port} is taken")
        self._server.start()

    def stop(self) -> None:
        self.handlers.stop.set()
        self._server.stop(0).wait()


def path(method: str) -> str:
    return f"/{SERVICE}/{method}"

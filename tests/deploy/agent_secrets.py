"""Replaces Istio's agent for one sidecar: it serves secrets (SDS, over gRPC in cleartext).

It is a separate program, whose arguments are the port and the files of the authority, the
certificate and its key. grpc_tools and OR-Tools both contain protobuf's C++ code, and a process
that loads both ends.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from google.protobuf.any_pb2 import Any

_STREAM = "envoy.service.secret.v3.SecretDiscoveryService", "StreamSecrets"
_SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"


def serve(port: int, ca: Path, certificate: Path, key: Path) -> None:
    """Serves until the process is stopped.

    `default` is the workload's certificate and `ROOTCA` the authorities that it trusts.
    """
    messages = grpc.protos("sds.proto")  # found beside this file

    def secret(name: str) -> Any:
        found = messages.Secret(name=name)
        if name == "ROOTCA":
            found.validation_context.trusted_ca.inline_bytes = ca.read_bytes()
        else:
            found.tls_certificate.certificate_chain.inline_bytes = certificate.read_bytes()
            found.tls_certificate.private_key.inline_bytes = key.read_bytes()
        return Any(type_url=_SECRET, value=found.SerializeToString())

    def answers(requests: Iterable, _: grpc.ServicerContext) -> Iterator:
        for request in requests:
            # a request with a nonce is an acknowledgement, not a question
            if not request.response_nonce:
                yield messages.DiscoveryResponse(
                    version_info="1",
                    nonce="1",
                    type_url=_SECRET,
                    resources=[secret(name) for name in request.resource_names],
                )

    handler = grpc.stream_stream_rpc_method_handler(
        answers, messages.DiscoveryRequest.FromString, messages.DiscoveryResponse.SerializeToString
    )
    server = grpc.server(ThreadPoolExecutor(64))
    service, method = _STREAM
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    threading.Event().wait()


if __name__ == "__main__":
    serve(int(sys.argv[1]), *map(Path, sys.argv[2:]))

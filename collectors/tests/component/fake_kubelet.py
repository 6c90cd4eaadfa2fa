"""An HTTPS server that answers /stats/summary and /pods as a kubelet does.

A client must show the current token. The answers are in kubeletcpureceiver/testdata, written by
hand in the kubelet's format. Their readings get the present time.
"""

import json
import secrets
import ssl
import threading
from collections import Counter
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from spillway_lab.testing.tls_files import TlsFiles

RECORDED = Path(__file__).resolve().parents[2] / "kubeletcpureceiver" / "testdata"
_FILES = {"/stats/summary": "summary.json", "/pods": "pods.json"}


class FakeKubelet:
    """`with FakeKubelet(tls, folder) as kubelet:` serves on kubelet.address.

    The current token is in kubelet.token_file.
    """

    def __init__(self, tls: TlsFiles, folder: Path) -> None:
        self.answers: Counter = Counter()  # keyed by (path, status)
        self.token_file = folder / "token"
        self.rotate()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls.certificate, tls.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def rotate(self) -> None:
        """Writes a new token. The old one is refused from now on."""
        self._token = secrets.token_hex(16)
        self.token_file.write_text(self._token)

    def __enter__(self) -> "FakeKubelet":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        """Returns status and body."""
        if authorization != f"Bearer {self._token}":
            return 401, b"Unauthorized"
        if path not in _FILES:
            return 404, b"404 page not found"
        body = json.loads((RECORDED / _FILES[path]).read_text())
        for pod in body.get("pods", []):
            for container in pod["containers"]:
                container["cpu"]["time"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return 200, json.dumps(body).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        kubelet = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = kubelet.answer(self.path, self.headers["Authorization"])
                kubelet.answers[self.path, status] += 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        return Handler

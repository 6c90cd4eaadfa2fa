"""A name server over UDP that knows one name with several IPv4 addresses (RFC 1035)."""

import socket
import struct
import threading
from ipaddress import IPv4Address

_A, _IN, _NO_SUCH_NAME = 1, 1, 3


class FakeDns:
    """`with FakeDns("gateway.test", ["127.0.0.1", "127.0.0.2"]) as dns:` serves on dns.address."""

    def __init__(self, name: str, addresses: list[str]) -> None:
        self._name = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
        self._addresses = [IPv4Address(address).packed for address in addresses]
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "FakeDns":
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, sender = self._socket.recvfrom(4096)
            except OSError:
                return
            self._socket.sendto(self._answer(query), sender)

    def _answer(self, query: bytes) -> bytes:
        end = query.index(b"\0", 12) + 5  # of the question: its name, type and class
        question, (kind,) = query[12:end], struct.unpack_from(">H", query, end - 4)
        known = question[:-4].lower() == self._name
        found = self._addresses if known and kind == _A else []
        records = [b"\xc0\x0c" + struct.pack(">HHIH", _A, _IN, 1, 4) + packed for packed in found]
        flags = 0x8580 | (0 if known else _NO_SUCH_NAME)
        head = query[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
        return head + question + b"".join(records)

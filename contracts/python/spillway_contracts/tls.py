"""A client's TLS from PEM files that may be replaced while it runs: every new connection sees the newest."""

import ssl
import threading
from pathlib import Path
from typing import Any, Literal

# A file of authorities, or the root certificates of this machine: those that managed servers' certificates chain to.
Authorities = Literal["system"] | Path


def check(authorities: Authorities) -> None:
    """ValueError unless the file holds certificates, or this machine has root certificates."""
    if authorities == "system":
        _check_system()
        return
    try:
        ssl.create_default_context(cafile=str(authorities))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{str(authorities)!r} is no readable PEM file of certificates: {_why(error)}"
        ) from None


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """ValueError unless both or none are given, and the key is the certificate's."""
    if bool(certificate) != bool(key):
        raise ValueError("certificate and key: one is set; must be both or none")
    if certificate and key:
        try:
            ssl.create_default_context().load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            names = f"{str(certificate)!r} and {str(key)!r}"
            raise ValueError(f"{names} are no readable PEM certificate and its key: {_why(error)}") from None


def context(authorities: Authorities | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Checks servers' certificates and names against these authorities, None: the system's. Raises OSError."""
    made = _Renewed(ssl.PROTOCOL_TLS_CLIENT)
    if authorities in (None, "system"):
        made.load_default_certs()
        authorities = None
    made.follow(authorities, certificate, key)
    return made


def _check_system() -> None:
    """OpenSSL reads its folder only when it verifies: an image without roots would show in the first handshake."""
    places = ssl.get_default_verify_paths()
    file, folder = places.cafile, places.capath
    if not (file and Path(file).stat().st_size) and not (folder and any(Path(folder).iterdir())):
        raise ValueError(
            f"system: no root certificates in {places.openssl_cafile} or {places.openssl_capath}; "
            "install the package ca-certificates, or name a PEM file"
        )


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


class _Renewed(ssl.SSLContext):
    """Reads its files again before a connection when they have changed. An authority that is no longer in its file is
    trusted until the process ends: OpenSSL only adds to a context."""

    def follow(self, authorities: Path | None, certificate: Path | None, key: Path | None) -> None:
        self._authorities, self._pair = authorities, (certificate, key) if certificate else None
        self._lock, self._seen = threading.Lock(), None
        self._read()

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        self._refresh()
        return super().wrap_socket(*args, **kwargs)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        self._refresh()
        return super().wrap_bio(*args, **kwargs)

    def _refresh(self) -> None:
        try:
            self._read()
        except (OSError, ValueError):
            pass  # half written or away: what was read last holds, the next connection looks again

    def _read(self) -> None:
        with self._lock:
            files = [file for file in (self._authorities, *(self._pair or ())) if file]
            now = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
            if now == self._seen:
                return
            if self._pair:
                # A pair that does not fit is tried elsewhere: here its certificate would stay, without the old key.
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*self._pair)
                self.load_cert_chain(*self._pair)
            if self._authorities:
                self.load_verify_locations(self._authorities)
            self._seen = now

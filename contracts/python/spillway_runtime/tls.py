"""A client's TLS from PEM files that may be replaced while it runs.

Every new connection uses the newest files.
"""

import ssl
import threading
from pathlib import Path
from typing import Any, Literal

# A file of authorities, or the root certificates of this machine, to which the certificates of
# managed servers chain.
Authorities = Literal["system"] | Path


def check(authorities: Authorities) -> None:
    """Raises ValueError unless the file, or this machine, has certificates of authorities."""
    if authorities == "system":
        _check_system()
        return
    try:
        ssl.create_default_context(cafile=str(authorities))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{str(authorities)!r} must be a readable PEM file of certificates: {_why(error)}"
        ) from None


def check_pair(certificate: Path | None, key: Path | None) -> None:
    """Raises ValueError unless both or none are given, and the key belongs to the certificate."""
    if bool(certificate) != bool(key):
        raise ValueError("certificate and key: one is set; must be both or none")
    if certificate and key:
        try:
            ssl.create_default_context().load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            names = f"{str(certificate)!r} and {str(key)!r}"
            raise ValueError(
                f"{names} must be a readable PEM certificate and its key: {_why(error)}"
            ) from None


def context(authorities: Authorities | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """Returns a context that checks servers' certificates and names against these authorities.

    `authorities` None: the system's. Raises OSError.
    """
    made = _Renewed(ssl.PROTOCOL_TLS_CLIENT)
    file = file_of(authorities)
    if file is None:
        made.load_default_certs()
    made.follow(file, certificate, key)
    return made


def file_of(authorities: Authorities | None) -> Path | None:
    """Returns the file of authorities, or None when they are the system's."""
    return None if authorities == "system" else authorities


def _check_system() -> None:
    """Raises ValueError when this machine has no root certificates.

    OpenSSL reads its folder only when it verifies. Without this check, an image without root
    certificates would fail only in the first handshake.
    """
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
    """Reads its files again before a connection when they have changed.

    An authority that was removed from its file stays trusted until the process ends, because
    OpenSSL only adds to a context.
    """

    def follow(self, authorities: Path | None, certificate: Path | None, key: Path | None) -> None:
        self._authorities, self._pair = authorities, (certificate, key) if certificate else None
        self._lock = threading.Lock()
        # (time of the last change in ns, inode) of each file when it was read; None: not read yet
        self._seen: list[tuple[int, int]] | None = None
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
            # Half written or missing: the last content stays, and the next connection looks again
            pass

    def _read(self) -> None:
        with self._lock:
            files = [file for file in (self._authorities, *(self._pair or ())) if file]
            now = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
            if now == self._seen:
                return
            if self._pair:
                # A pair that does not match must fail in a temporary context. In this one its
                # certificate would stay, without the old key.
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*self._pair)
                self.load_cert_chain(*self._pair)
            if self._authorities:
                self.load_verify_locations(self._authorities)
            self._seen = now

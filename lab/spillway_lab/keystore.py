"""Keys and certificates on disk, laid out as Kubernetes mounts a TLS secret, so that what is tried here
is what runs there:

    tls/authority/ca.crt, ca.key    who signs; ca.crt holds every authority that is still valid, newest first
    tls/<name>/tls.crt, tls.key, ca.crt -> ..data/…
    tls/<name>/..data -> ..<time>   the one that is in force: renamed over, so certificate and key change at once
"""

import os
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from spillway_lab import certificates
from spillway_lab.certificates import Identity, Issued
from spillway_lab.errors import LabError

CERTIFICATE, KEY, TRUST = "tls.crt", "tls.key", "ca.crt"
_AUTHORITY = "authority"
_AUTHORITY_KEY = "ca.key"
_DATA = "..data"


class Keystore:
    """The folder `tls` of one run. One process writes at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def issue(self, identities: Iterable[Identity], now: datetime | None = None) -> None:
        """New keys and certificates, whatever was there. LabError when they cannot be written."""
        now = now or datetime.now(UTC)
        try:
            signer, trust = self._authority(now)
            for identity in identities:
                self._put(identity.name, certificates.issue(signer, identity, now), trust)
        except (OSError, ValueError) as error:
            raise LabError(f"{self.folder}: certificates cannot be issued: {error}") from error

    def renew(self, now: datetime | None = None) -> list[Identity]:
        """Issues every certificate of the store again. LabError when there is none."""
        identities = [certificates.identity_of(name, held) for name, held in self.held().items()]
        if not identities:
            raise LabError(f"{self.folder}: no certificates to renew; allowed: folder tls of a run")
        self.issue(identities, now)
        return identities

    def held(self) -> dict[str, x509.Certificate]:
        """Certificates by name."""
        found = sorted(self.folder.glob(f"*/{CERTIFICATE}"))
        return {path.parent.name: x509.load_pem_x509_certificate(path.read_bytes()) for path in found}

    def _authority(self, now: datetime) -> tuple[Issued, bytes]:
        """Who signs now, and everyone whose certificates may still be about."""
        folder = self.folder / _AUTHORITY
        certificate, key = folder / TRUST, folder / _AUTHORITY_KEY
        known = x509.load_pem_x509_certificates(certificate.read_bytes()) if certificate.exists() else []
        valid = [one for one in known if one.not_valid_after_utc > now]
        if valid and valid[0].not_valid_after_utc >= now + certificates.LIFETIME:
            signer = Issued(valid[0], serialization.load_pem_private_key(key.read_bytes(), password=None))
        else:
            signer = certificates.authority(now)
            valid.insert(0, signer.certificate)
            folder.mkdir(parents=True, exist_ok=True)
            _write(key, signer.key_pem, 0o600)
            _write(certificate, _pem(valid), 0o644)
        return signer, _pem(valid)

    def _put(self, name: str, issued: Issued, trust: bytes) -> None:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        before = (folder / _DATA).readlink() if (folder / _DATA).is_symlink() else None
        version = folder / f"..{issued.certificate.serial_number:x}"
        version.mkdir()
        _write(version / CERTIFICATE, issued.certificate_pem, 0o644)
        _write(version / KEY, issued.key_pem, 0o600)
        _write(version / TRUST, trust, 0o644)
        for file in (CERTIFICATE, KEY, TRUST):
            if not (folder / file).is_symlink():
                (folder / file).symlink_to(f"{_DATA}/{file}")
        unfinished = folder / f"{_DATA}.new"
        unfinished.unlink(missing_ok=True)
        unfinished.symlink_to(version.name)
        unfinished.replace(folder / _DATA)
        if before:
            shutil.rmtree(folder / before, ignore_errors=True)


def _pem(several: list[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in several)


def _write(path: Path, content: bytes, mode: int) -> None:
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.replace(path)

"""Keys and certificates on disk, in the layout of a TLS secret that Kubernetes mounts.

The lab therefore tests the same layout that a deployment uses:

    tls/authority/<cluster>/ca.crt, ca.key     the cluster's authority; ca.crt holds all that are
                                               still valid, newest first
    tls/<name>/tls.crt, tls.key, ca.crt        one pod, relay or collector; its ca.crt holds the
                                               authorities of its own cluster only
    tls/<folder>/<file> -> ..data/<file>
    tls/<folder>/..data -> ..<serial number>   the current issue; the link is replaced by a
                                               rename, so that all files change at once
"""

import os
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from spillway_lab.keys import certificates
from spillway_lab.keys.certificates import Identity, Issued
from spillway_lab.scenario.errors import LabError

CERTIFICATE, KEY, TRUST = "tls.crt", "tls.key", "ca.crt"
_AUTHORITY = "authority"
_AUTHORITY_KEY = "ca.key"
_DATA = "..data"


class Keystore:
    """The folder `tls` of one run. Only one process may write to it at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def issue(self, identities: Iterable[Identity], now: datetime | None = None) -> None:
        """Issues new keys and certificates and replaces existing ones.

        Raises LabError when they cannot be written.
        """
        now = now or datetime.now(UTC)
        try:
            authorities: dict[str, tuple[Issued, bytes]] = {}
            for identity in identities:
                cluster = identity.cluster
                if cluster not in authorities:
                    authorities[cluster] = self._authority(cluster, now)
                signer, trust = authorities[cluster]
                issued = certificates.issue(signer, identity, now)
                files = {CERTIFICATE: issued.certificate_pem, KEY: issued.key_pem, TRUST: trust}
                self._put(self.folder / identity.name, issued, files)
        except (OSError, ValueError) as error:
            raise LabError(f"{self.folder}: certificates cannot be issued: {error}") from error

    def renew(self, now: datetime | None = None) -> list[Identity]:
        """Reissues every certificate of the store. Raises LabError when the store has none."""
        identities = [certificates.identity_of(name, held) for name, held in self.held().items()]
        if not identities:
            raise LabError(f"{self.folder}: no certificates to renew; allowed: folder tls of a run")
        self.issue(identities, now)
        return identities

    def held(self) -> dict[str, x509.Certificate]:
        """Returns the stored certificates by name."""
        found = sorted(self.folder.glob(f"*/{CERTIFICATE}"))
        return {path.parent.name: x509.load_pem_x509_certificate(path.read_bytes()) for path in found}

    def authority(self, cluster: str) -> Path:
        """Folder of a cluster's authority."""
        return self.folder / _AUTHORITY / cluster

    def _authority(self, cluster: str, now: datetime) -> tuple[Issued, bytes]:
        """Returns the cluster's current signer, and its authorities that are still valid as PEM.

        Certificates of an older authority may still be in use until that authority expires.
        """
        certificate, key = (self.authority(cluster) / name for name in (TRUST, _AUTHORITY_KEY))
        known = x509.load_pem_x509_certificates(certificate.read_bytes()) if certificate.exists() else []
        valid = [authority for authority in known if authority.not_valid_after_utc > now]
        if valid and valid[0].not_valid_after_utc >= now + certificates.LIFETIME:
            held = serialization.load_pem_private_key(key.read_bytes(), password=None)
            # Authorities are made with keys of this type only (certificates.authority).
            if not isinstance(held, ec.EllipticCurvePrivateKey) or held.public_key() != valid[0].public_key():
                raise ValueError(
                    f"{key}: must be an elliptic-curve key, and the key of {certificate}; "
                    "without these files a new authority is made"
                )
            return Issued(valid[0], held), _pem(valid)
        signer = certificates.authority(cluster, now)
        trust = _pem([signer.certificate, *valid])
        self._put(self.authority(cluster), signer, {TRUST: trust, _AUTHORITY_KEY: signer.key_pem})
        return signer, trust

    def _put(self, folder: Path, issued: Issued, files: Mapping[str, bytes]) -> None:
        """Replaces all files of a folder at once.

        A reader finds the files of a single issue, even after a crash.
        """
        folder.mkdir(parents=True, exist_ok=True)
        before = (folder / _DATA).readlink() if (folder / _DATA).is_symlink() else None
        version = folder / f"..{issued.certificate.serial_number:x}"
        version.mkdir()
        for file, content in files.items():
            _write(version / file, content)
        _link(folder / _DATA, version.name)
        for file in files:
            if not (folder / file).is_symlink():
                _link(folder / file, f"{_DATA}/{file}")
        if before:
            shutil.rmtree(folder / before, ignore_errors=True)


def _pem(several: list[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in several)


def _write(path: Path, content: bytes) -> None:
    mode = 0o600 if path.suffix == ".key" else 0o644
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _link(path: Path, target: str) -> None:
    """Creates a symbolic link and replaces an existing one."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(target)
    unfinished.replace(path)

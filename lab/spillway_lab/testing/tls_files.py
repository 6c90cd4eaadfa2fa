"""A certificate authority of a test's own, and a server's certificate from it, as PEM files."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NAMES = [
    x509.DNSName("gateway.test"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
]


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: the authority, and a certificate for gateway.test and 127.0.0.1 with its key."""

    ca: Path
    certificate: Path
    key: Path


def tls_files(folder: Path) -> TlsFiles:
    """Writes all three; valid for an hour."""
    folder.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _signed("test authority", "test authority", authority_key, authority_key, None)
    server = _signed(
        "gateway.test", "test authority", key, authority_key, x509.SubjectAlternativeName(_NAMES)
    )
    files.ca.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    files.key.touch(mode=0o600)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def _signed(subject, issuer, key, issuer_key, alternative_names) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=alternative_names is None, path_length=None), critical=True)
    )
    if alternative_names is not None:
        builder = builder.add_extension(alternative_names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())

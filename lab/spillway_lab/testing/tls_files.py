"""A test's own certificate authority, and a server certificate from it, as PEM files."""

import datetime
import ipaddress
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_NAMES = [
    x509.DNSName("gateway.test"),
    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
]

_EXTENDED = {"server_auth": ExtendedKeyUsageOID.SERVER_AUTH, "client_auth": ExtendedKeyUsageOID.CLIENT_AUTH}
_OTHER_USAGES = (
    "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign", "crl_sign",
    "encipher_only", "decipher_only",
)  # fmt: skip


@dataclass(frozen=True)
class TlsFiles:
    """Paths of PEM files: an authority, a certificate for gateway.test and 127.0.0.1, its key."""

    ca: Path
    certificate: Path
    key: Path


class Authority:
    """Signs certificates for gateway.test and 127.0.0.1 that are valid for an hour."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate("test authority", self._key)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        self.pem = _pem(builder.add_extension(constraints, critical=True), self._key)

    def issue(self, uses: Collection[str] = ()) -> tuple[bytes, bytes]:
        """Returns a certificate and its key as PEM.

        `uses` may hold digital_signature, server_auth and client_auth. An empty `uses` allows every
        usage.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate("gateway.test", key)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.SubjectAlternativeName(_NAMES), critical=False)
        for extension in _usages(uses):
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.KeyUsage))
        form = serialization.PrivateFormat.PKCS8
        encoded = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
        return _pem(builder, self._key), encoded


def tls_files(folder: Path) -> TlsFiles:
    """Writes all three files. The certificates are valid for an hour."""
    folder.mkdir(parents=True, exist_ok=True)
    files = TlsFiles(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
    authority = Authority()
    certificate, key = authority.issue()
    files.ca.write_bytes(authority.pem)
    files.certificate.write_bytes(certificate)
    files.key.touch(mode=0o600)
    files.key.write_bytes(key)
    return files


def _usages(uses: Collection[str]) -> Iterator[x509.ExtensionType]:
    if unknown := set(uses) - {"digital_signature", *_EXTENDED}:
        raise ValueError(
            f"uses: {', '.join(sorted(unknown))}; allowed: digital_signature, {', '.join(_EXTENDED)}"
        )
    if "digital_signature" in uses:
        others = dict.fromkeys(_OTHER_USAGES, False)
        yield x509.KeyUsage(digital_signature=True, **others)
    if extended := [_EXTENDED[use] for use in uses if use in _EXTENDED]:
        yield x509.ExtendedKeyUsage(extended)


def _certificate(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


def _pem(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> bytes:
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

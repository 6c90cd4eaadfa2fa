"""A certificate authority for one test; its certificates name their holder by a URI."""

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3"


class Authority:
    """A certificate authority that keeps its files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name.from_rfc4514_string("CN=authority")
        authority = self._signed(self._name, self._key, x509.BasicConstraints(ca=True, path_length=0))
        self.trust = folder / "ca.crt"
        self.trust.write_bytes(authority.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, uri: str) -> tuple[Path, Path]:
        """Issues a certificate for the URI. Returns the paths of the certificate and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name.from_rfc4514_string(f"CN={name}")
        identity = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
        made = self._signed(subject, key, x509.BasicConstraints(ca=False, path_length=None), identity)
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        files[0].write_bytes(made.public_bytes(encoding))
        files[1].write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
        return files

    def listener(self, name: str, uri: str) -> dict:
        """Returns a listener's transport socket that verifies a caller's certificate, if any."""
        certificate, key = ({"filename": str(path)} for path in self.issue(name, uri))
        common = {
            "tls_certificates": [{"certificate_chain": certificate, "private_key": key}],
            "validation_context": {"trusted_ca": {"filename": str(self.trust)}},
        }
        typed = {"@type": f"{TLS}.DownstreamTlsContext", "common_tls_context": common}
        return {"name": "tls", "typed_config": typed}

    def caller(self, files: tuple[Path, Path] | None) -> ssl.SSLContext:
        """Returns the TLS context of a caller with this certificate, or without one for None."""
        context = ssl.create_default_context(cafile=str(self.trust))
        context.check_hostname = False
        if files is not None:
            context.load_cert_chain(*files)
        return context

    def _signed(self, subject: x509.Name, key, *extensions: x509.ExtensionType) -> x509.Certificate:
        now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
        builder = x509.CertificateBuilder(
            issuer_name=self._name, subject_name=subject, public_key=key.public_key(),
            serial_number=x509.random_serial_number(), not_valid_before=now - day, not_valid_after=now + day,
        )  # fmt: skip
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self._key, hashes.SHA256())

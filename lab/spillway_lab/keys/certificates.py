"""X.509 certificates of the lab: one authority per cluster, and short-lived certificates.

A certificate's identity is its only URI, a SPIFFE ID (https://github.com/spiffe/spiffe,
X.509-SVID):

    spiffe://spillway.local/cluster/<cluster>/service/<service>   a pod; its relay checks it
    spiffe://spillway.local/cluster/<cluster>/relay               a relay; its Envoys expect it
    spiffe://spillway.local/cluster/<cluster>/collector           a collector; its Envoys expect it
    spiffe://spillway.local/cluster/<cluster>/sender              a span sender that is not a pod

The time is an argument. Keys and serial numbers come from the operating system's random source.
"""

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

TRUST_DOMAIN = "spiffe://spillway.local"
# Value of SPILLWAY_XDS_IDENTITY for the relays.
SERVICE_PATTERN = TRUST_DOMAIN + "/cluster/{cluster}/service/{service}"
RELAY_PATTERN = TRUST_DOMAIN + "/cluster/{cluster}/relay"
COLLECTOR_PATTERN = TRUST_DOMAIN + "/cluster/{cluster}/collector"
_SENDER_PATTERN = TRUST_DOMAIN + "/cluster/{cluster}/sender"
_CLUSTER = re.compile(re.escape(TRUST_DOMAIN) + "/cluster/([^/]+)/")

LIFETIME = timedelta(days=7)
AUTHORITY_LIFETIME = timedelta(days=30)
_CLOCK_SKEW = timedelta(minutes=5)
_COMMON_NAME_MAX = 64  # RFC 5280, appendix A.1


@dataclass(frozen=True)
class Identity:
    """The holder of a certificate. It is a server if it has hosts, else a client."""

    name: str  # folder of its files
    uri: str
    hosts: tuple[str, ...] = ()  # DNS names and IP addresses

    @property
    def cluster(self) -> str:
        """The cluster whose authority signs the certificate.

        Raises ValueError for a URI that is not one of the lab's.
        """
        if found := _CLUSTER.match(self.uri):
            return found[1]
        raise ValueError(f"{self.name}: {self.uri!r} names no cluster; allowed: {_CLUSTER.pattern}…")


@dataclass(frozen=True)
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def relay(cluster: str, hosts: tuple[str, ...]) -> Identity:
    return Identity(f"relay-{cluster}", RELAY_PATTERN.format(cluster=cluster), hosts)


def collector(cluster: str, hosts: tuple[str, ...]) -> Identity:
    return Identity(f"collector-{cluster}", COLLECTOR_PATTERN.format(cluster=cluster), hosts)


def sender(cluster: str) -> Identity:
    """Identity of a client that the collector accepts and no relay does."""
    return Identity(f"sender-{cluster}", _SENDER_PATTERN.format(cluster=cluster))


def pod(name: str, cluster: str, service: str) -> Identity:
    return Identity(name, SERVICE_PATTERN.format(cluster=cluster, service=service))


def authority(cluster: str, now: datetime) -> Issued:
    """Creates a cluster's self-signed authority, which cannot sign another authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"spillway lab {cluster}"[:_COMMON_NAME_MAX])])
    builder = (
        _builder(name, name, key, now, AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return Issued(builder.sign(key, hashes.SHA256()), key)


def issue(by: Issued, identity: Identity, now: datetime) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = by.certificate
    usage = ExtendedKeyUsageOID.SERVER_AUTH if identity.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    names = [x509.UniformResourceIdentifier(identity.uri), *map(_host, identity.hosts)]
    builder = (
        # The subject is empty, so the alternative names must be critical (RFC 5280, 4.2.1.6).
        _builder(x509.Name([]), issuer.subject, key, now, LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), critical=False
        )
    )
    return Issued(builder.sign(by.key, hashes.SHA256()), key)


def identity_of(name: str, certificate: x509.Certificate) -> Identity:
    """Returns the identity that one of the lab's certificates was issued for."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return Identity(
        name,
        names.get_values_for_type(x509.UniformResourceIdentifier)[0],
        (*names.get_values_for_type(x509.DNSName), *addresses),
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

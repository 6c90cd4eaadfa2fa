"""X.509 of the lab: an authority of its own, and short-lived certificates that name what holds them.

A certificate's identity is its one URI, a SPIFFE ID (https://github.com/spiffe/spiffe, X.509-SVID):

    spiffe://spillway.local/cluster/<cluster>/service/<service>   a pod: what it may ask its relay for
    spiffe://spillway.local/cluster/<cluster>/relay               a relay: what its Envoys look for

The time is an argument; keys and serial numbers are the operating system's chance.
"""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

TRUST_DOMAIN = "spiffe://spillway.local"
# SPILLWAY_XDS_IDENTITY of the relays.
SERVICE_PATTERN = TRUST_DOMAIN + "/cluster/{cluster}/service/{service}"
RELAY_PATTERN = TRUST_DOMAIN + "/cluster/{cluster}/relay"

LIFETIME = timedelta(days=7)
AUTHORITY_LIFETIME = timedelta(days=30)
_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Identity:
    """Who a certificate is for; who has hosts is a server, who has none a client."""

    name: str  # folder of its files
    uri: str
    hosts: tuple[str, ...] = ()  # DNS names and IP addresses


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


def pod(name: str, cluster: str, service: str) -> Identity:
    return Identity(name, SERVICE_PATTERN.format(cluster=cluster, service=service))


def authority(now: datetime) -> Issued:
    """A self-signed authority that can sign no other authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "spillway lab")])
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
        # The subject is empty, so the names are critical (RFC 5280, 4.2.1.6).
        _builder(x509.Name([]), issuer.subject, key, now, LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False
        )
    )
    return Issued(builder.sign(by.key, hashes.SHA256()), key)


def identity_of(name: str, certificate: x509.Certificate) -> Identity:
    """What a certificate of ours was issued for."""
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

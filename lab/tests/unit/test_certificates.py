"""Certificates name exactly their holder. A renewal replaces certificate and key together."""

import contextlib
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID
from spillway_lab.keys import certificates, keystore
from spillway_lab.keys.keystore import Keystore
from spillway_lab.scenario.errors import LabError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RELAY = certificates.relay("a", ("relay-a", "10.0.0.1"))
POD = certificates.pod("a-cart-0", "a", "cart")


def verified(
    folder: Path, now: datetime, host: str | None = None, trust: bytes | None = None
) -> list[x509.Certificate]:
    """Verifies the folder's certificate like a peer and returns its chain.

    The peer trusts the bundle in `trust`, or else the folder's own.
    """
    bundle = x509.load_pem_x509_certificates(trust or (folder / "ca.crt").read_bytes())
    leaf = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    builder = x509.verification.PolicyBuilder().store(x509.verification.Store(bundle)).time(now)
    if host:
        return builder.build_server_verifier(x509.DNSName(host)).verify(leaf, [])
    return builder.build_client_verifier().verify(leaf, []).chain


def test_a_pod_is_a_client_with_one_uri(tmp_path: Path) -> None:
    """A pod's certificate verifies against the bundle beside it, and only as a client.

    Its SPIFFE ID is its only name.
    """
    Keystore(tmp_path).issue([POD], NOW)
    leaf = verified(tmp_path / POD.name, NOW)[0]
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [name.value for name in names.value] == ["spiffe://spillway.local/cluster/a/service/cart"]
    assert names.critical
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    with pytest.raises(x509.verification.VerificationError):
        verified(tmp_path / POD.name, NOW, host="relay-a")


def test_a_relay_is_a_server_under_its_hosts(tmp_path: Path) -> None:
    """A relay's certificate verifies for its host and carries its identity, but not as a client."""
    Keystore(tmp_path).issue([RELAY], NOW)
    leaf = verified(tmp_path / RELAY.name, NOW, host="relay-a")[0]
    assert certificates.identity_of(RELAY.name, leaf) == RELAY
    with pytest.raises(x509.verification.VerificationError):
        verified(tmp_path / RELAY.name, NOW)


def test_certificates_end_after_a_week(tmp_path: Path) -> None:
    """A certificate is valid for 7 days and not a day longer."""
    Keystore(tmp_path).issue([POD], NOW)
    verified(tmp_path / POD.name, NOW + timedelta(days=6, hours=23))
    with pytest.raises(x509.verification.VerificationError):
        verified(tmp_path / POD.name, NOW + timedelta(days=7, minutes=1))


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Every private key has mode 0600 and belongs to the certificate beside it."""
    Keystore(tmp_path).issue([RELAY, POD], NOW)
    keys = [path for path in tmp_path.rglob("*.key") if not path.is_symlink()]
    assert len(keys) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    for name, certificate in Keystore(tmp_path).held().items():
        key = serialization.load_pem_private_key((tmp_path / name / "tls.key").read_bytes(), password=None)
        assert key.public_key() == certificate.public_key()


def test_renewing_replaces_all_three_by_one_rename(tmp_path: Path) -> None:
    """Identities stay the same and keys are new. One symbolic link is renamed.

    No file of the old version is left.
    """
    store = Keystore(tmp_path)
    store.issue([RELAY, POD], NOW)
    before, version = store.held(), (tmp_path / POD.name / "..data").readlink()
    assert store.renew(NOW + timedelta(days=3)) == sorted([RELAY, POD], key=lambda identity: identity.name)
    after = store.held()
    for name, certificate in after.items():
        assert certificate.serial_number != before[name].serial_number
        assert certificate.public_key() != before[name].public_key()
    assert (tmp_path / POD.name / "..data").readlink() != version
    assert not (tmp_path / POD.name / version).exists()
    verified(tmp_path / POD.name, NOW + timedelta(days=9))


def test_an_authority_near_its_end_is_followed_by_another_that_overlaps(tmp_path: Path) -> None:
    """Both authorities are trusted while certificates of the old one may still be in use.

    After that only the new one is trusted.
    """
    store = Keystore(tmp_path)
    store.issue([RELAY, POD], NOW)
    later = NOW + timedelta(days=25)
    store.issue([POD], later)
    bundle = x509.load_pem_x509_certificates((tmp_path / POD.name / "ca.crt").read_bytes())
    assert len(bundle) == 2
    verified(tmp_path / POD.name, later)
    store.issue([POD], NOW + timedelta(days=31))
    assert len(x509.load_pem_x509_certificates((tmp_path / POD.name / "ca.crt").read_bytes())) == 1


def crashing(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Simulates a crash of the process at the write or link after `after` successful ones."""
    left = [after]

    def counted(real):
        def run(*arguments):
            if not left[0]:
                raise OSError("crashed")
            left[0] -= 1
            real(*arguments)

        return run

    monkeypatch.setattr(keystore, "_write", counted(keystore._write))
    monkeypatch.setattr(keystore, "_link", counted(keystore._link))


@pytest.mark.parametrize("after", range(12))
def test_a_crash_leaves_certificates_that_fit_their_keys(tmp_path: Path, monkeypatch, after: int) -> None:
    """A crash at any point of a new authority's issue leaves usable files.

    The next issue signs with the key of its certificate and still trusts the previous authority.
    """
    store, later = Keystore(tmp_path), NOW + timedelta(days=25)
    store.issue([POD], NOW)
    with monkeypatch.context() as patched:
        crashing(patched, after)
        with contextlib.suppress(LabError):
            store.issue([POD], later)
    for name, files in (("authority/a", ("ca.crt", "ca.key")), (POD.name, ("tls.crt", "tls.key"))):
        certificate, key = ((tmp_path / name / file).read_bytes() for file in files)
        held = x509.load_pem_x509_certificates(certificate)[0]
        assert serialization.load_pem_private_key(key, password=None).public_key() == held.public_key()
    store.issue([POD], later)
    verified(tmp_path / POD.name, later)
    assert len(x509.load_pem_x509_certificates((tmp_path / POD.name / "ca.crt").read_bytes())) == 2


def test_an_authority_with_another_key_signs_nothing(tmp_path: Path) -> None:
    """Files that do not belong together cause an error that names them.

    Certificates that no peer would trust are not issued.
    """
    Keystore(tmp_path / "one").issue([POD], NOW)
    Keystore(tmp_path / "two").issue([POD], NOW)
    foreign = (tmp_path / "two/authority/a/ca.key").read_bytes()
    (tmp_path / "one/authority/a/ca.key").write_bytes(foreign)
    with pytest.raises(LabError, match="authority/a/ca.key: must be an elliptic-curve key, and the key of"):
        Keystore(tmp_path / "one").issue([POD], NOW)


def test_a_cluster_trusts_no_other_clusters_authority(tmp_path: Path) -> None:
    """Each cluster has its own authority, also after a renewal.

    A peer with another cluster's bundle refuses its certificates, as a client and as a server. Each
    bundle holds one authority.
    """
    store = Keystore(tmp_path)
    ours = [RELAY, POD, certificates.collector("a", ("host",)), certificates.sender("a")]
    theirs = [certificates.relay("b", ("relay-a",)), certificates.pod("b-cart-0", "b", "cart")]
    store.issue([*ours, *theirs], NOW)
    for renewed in (False, True):
        if renewed:
            store.renew(NOW)
        bundles = {
            identity.name: (tmp_path / identity.name / "ca.crt").read_bytes() for identity in [*ours, *theirs]
        }
        assert (
            len({bundles[identity.name] for identity in ours})
            == len({bundles[identity.name] for identity in theirs})
            == 1
        )
        assert all(len(x509.load_pem_x509_certificates(bundle)) == 1 for bundle in bundles.values())
        for identity, host in ((POD, None), (RELAY, "relay-a")):
            verified(tmp_path / identity.name, NOW, host)
        for identity, host in ((theirs[1], None), (theirs[0], "relay-a")):
            verified(tmp_path / identity.name, NOW, host)
            with pytest.raises(x509.verification.VerificationError):
                verified(tmp_path / identity.name, NOW, host, trust=bundles[POD.name])


def test_collectors_are_servers_and_senders_clients(tmp_path: Path) -> None:
    """A collector's certificate is valid for its host and a sender's for clients.

    Each names its role in its URI.
    """
    collector, sender = certificates.collector("a", ("collector-a",)), certificates.sender("a")
    Keystore(tmp_path).issue([collector, sender], NOW)
    leaf = verified(tmp_path / collector.name, NOW, host="collector-a")[0]
    assert certificates.identity_of(collector.name, leaf) == collector
    assert collector.uri == "spiffe://spillway.local/cluster/a/collector"
    leaf = verified(tmp_path / sender.name, NOW)[0]
    assert certificates.identity_of(sender.name, leaf) == sender
    with pytest.raises(x509.verification.VerificationError):
        verified(tmp_path / collector.name, NOW)


def test_a_certificate_of_no_cluster_is_not_issued(tmp_path: Path) -> None:
    """The error names the URI."""
    with pytest.raises(LabError, match="'spiffe://elsewhere/x' names no cluster"):
        Keystore(tmp_path).issue([certificates.Identity("x", "spiffe://elsewhere/x")], NOW)


def test_a_folder_without_certificates_cannot_be_renewed(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no certificates to renew; allowed: folder tls of a run"):
        Keystore(tmp_path).renew(NOW)

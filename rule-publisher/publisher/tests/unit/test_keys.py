"""The key files: how wrong ones are refused, and how they change while the publisher runs."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from spillway_contracts import ContractError
from spillway_publisher.bucket import signing
from spillway_publisher.bucket.keys import Keys


def private_pem(key) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public_pem(key) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def files(tmp_path: Path):
    """Paths of a signing key and of the trusted keys, and the signing key itself."""
    key = Ed25519PrivateKey.generate()
    signing_key, ruleset_keys = tmp_path / "signing.key", tmp_path / "keys.pem"
    signing_key.write_bytes(private_pem(key))
    ruleset_keys.write_bytes(public_pem(key))
    return signing_key, ruleset_keys, key


def test_wrong_files_are_refused_by_name(files):
    """Missing, of another kind, foreign block, empty: the error names variable and file."""
    signing_key, ruleset_keys, key = files
    other, second = generate_private_key(SECP256R1()), Ed25519PrivateKey.generate()
    for content, problem in (
        (b"", "must be one Ed25519 private key"),
        (private_pem(other), "must be one Ed25519 private key"),
        (public_pem(key), "must be one Ed25519 private key"),
        (None, "cannot be read: No such file"),
    ):
        signing_key.unlink(missing_ok=True)
        if content is not None:
            signing_key.write_bytes(content)
        with pytest.raises(ContractError, match=f"SPILLWAY_SIGNING_KEY: .*signing.key: {problem}"):
            Keys(signing_key, None)
    for content, problem in (
        (b"rubbish", "no PUBLIC KEY block in it"),
        (public_pem(key) + private_pem(key), "block 2: must be an Ed25519 PUBLIC KEY"),
        (public_pem(other), "block 1: must be an Ed25519 PUBLIC KEY"),
        (public_pem(key) + public_pem(second)[:60], "2 blocks begin, 1 are whole"),
    ):
        ruleset_keys.write_bytes(content)
        with pytest.raises(ContractError, match=f"SPILLWAY_RULESET_KEYS: .*keys.pem: {problem}"):
            Keys(None, ruleset_keys)


def test_keys_are_rotated_while_running(files):
    """A new signing key signs from the next check on.

    What the old key signed stays valid as long as the old key is listed.
    """
    signing_key, ruleset_keys, old = files
    keys = Keys(signing_key, ruleset_keys)
    before = keys.sign("north", b"rules")
    assert not keys.changed()
    new = Ed25519PrivateKey.generate()
    signing_key.write_bytes(private_pem(new))
    assert keys.changed() and not keys.changed()
    assert keys.id == signing.key_id(new.public_key())
    assert keys.verify("north", b"rules", before) == signing.key_id(old.public_key())
    # though not in the file
    assert keys.verify("north", b"rules", keys.sign("north", b"rules")) == keys.id
    ruleset_keys.write_bytes(public_pem(new))
    assert keys.changed()
    with pytest.raises(signing.UnverifiedError):
        keys.verify("north", b"rules", before)


def test_a_bad_new_file_keeps_the_old_key(files):
    """The error is raised once, not at each check.

    When the file is good again, nothing has changed.
    """
    signing_key, ruleset_keys, key = files
    keys, good = Keys(signing_key, ruleset_keys), signing_key.read_bytes()
    for bad in (b"", None):
        signing_key.unlink()
        if bad is not None:
            signing_key.write_bytes(bad)
        with pytest.raises(ContractError, match="SPILLWAY_SIGNING_KEY"):
            keys.changed()
        assert not keys.changed()
        assert keys.id == signing.key_id(key.public_key())
        signing_key.write_bytes(good)
        assert not keys.changed()


def test_a_file_that_is_cut_off_drops_no_key(files):
    """A file of two keys that is read half-written is not taken for a file of one key."""
    signing_key, ruleset_keys, key = files
    second = Ed25519PrivateKey.generate()
    whole = public_pem(key) + public_pem(second)
    ruleset_keys.write_bytes(whole)
    keys, signed = Keys(signing_key, ruleset_keys), signing.sign(second, "north", b"rules")
    ruleset_keys.write_bytes(whole[:-20])
    with pytest.raises(ContractError, match="2 blocks begin, 1 are whole"):
        keys.changed()
    assert keys.verify("north", b"rules", signed) == signing.key_id(second.public_key())

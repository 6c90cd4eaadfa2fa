"""What a signature covers, by contracts/golden/signatures.json, which relays verify too."""

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from spillway_contracts import names
from spillway_publisher.bucket import signing

GOLDEN = json.loads((Path(__file__).resolve().parents[4] / "contracts/golden/signatures.json").read_text())
KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (1, 2))
TRUSTED = {signing.key_id(key.public_key()): key.public_key() for key in (KEY, OTHER)}
SIGNATURE, KEY_ID = names.NATS_HEADER_SIGNATURE, names.NATS_HEADER_KEY_ID
clusters, payloads = st.text(st.characters(codec="utf-8"), max_size=20), st.binary(max_size=200)


def refusal(cluster: str, payload: bytes, headers: dict[str, str], trusted=TRUSTED) -> str:
    with pytest.raises(signing.UnverifiedError) as raised:
        signing.verify(trusted, cluster, payload, headers)
    return raised.value.reason


@pytest.mark.parametrize("vector", GOLDEN["vectors"], ids=lambda vector: vector["cluster"])
def test_the_format_is_that_of_the_golden_file(vector):
    """The signed bytes and the key id equal those in the file, which the relay's tests read too."""
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(GOLDEN["private_key_of_the_test_hex"]))
    payload = base64.b64decode(vector["payload"])
    assert signing.message(vector["cluster"], payload).hex() == vector["signed_hex"]
    assert signing.sign(key, vector["cluster"], payload) == vector["headers"]


@given(clusters, payloads)
def test_what_was_signed_is_verified(cluster, payload):
    """Any value verifies under any trusted key, and the result names the signer."""
    assert signing.verify(TRUSTED, cluster, payload, signing.sign(KEY, cluster, payload)) in TRUSTED


@given(clusters, payloads, clusters, payloads)
def test_nothing_else_has_the_same_signature(cluster, payload, other_cluster, other_payload):
    """Two different values sign different bytes, even if only the border after the name moves."""
    signed, other = (cluster, payload), (other_cluster, other_payload)
    assert (signing.message(*signed) == signing.message(*other)) == (signed == other)
    if signed != other:
        assert refusal(*other, signing.sign(KEY, *signed)) == signing.BAD_SIGNATURE


@given(payloads, st.integers(min_value=0))
def test_a_changed_bit_is_found(payload, where):
    """A changed bit is detected in the signature and in the value."""
    headers = signing.sign(KEY, "north", payload)
    signature = bytearray(base64.b64decode(headers[SIGNATURE]))
    bit = where % (8 * len(signature))
    signature[bit // 8] ^= 1 << bit % 8
    changed = {**headers, SIGNATURE: base64.b64encode(signature).decode()}
    assert refusal("north", payload, changed) == signing.BAD_SIGNATURE
    if payload:
        spoiled = bytearray(payload)
        spoiled[where // 8 % len(payload)] ^= 1 << where % 8
        assert refusal("north", bytes(spoiled), headers) == signing.BAD_SIGNATURE


def test_each_refusal_has_its_reason():
    """No headers, an untrusted key, another trusted key's name, and garbage each have a reason."""
    headers = signing.sign(KEY, "north", b"rules")
    other = {names: key for names, key in TRUSTED.items() if names != headers[KEY_ID]}
    for missing in (None, {}, {KEY_ID: headers[KEY_ID]}, {SIGNATURE: headers[SIGNATURE]}):
        assert refusal("north", b"rules", missing) == signing.UNSIGNED
    assert refusal("north", b"rules", headers, other) == signing.UNKNOWN_KEY
    assert refusal("north", b"rules", {**headers, KEY_ID: next(iter(other))}) == signing.BAD_SIGNATURE
    for rubbish in ("!", "AAAA", "ü", headers[SIGNATURE] + "AAAA"):
        assert refusal("north", b"rules", {**headers, SIGNATURE: rubbish}) == signing.BAD_SIGNATURE

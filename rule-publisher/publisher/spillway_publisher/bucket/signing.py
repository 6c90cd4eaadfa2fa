"""Signatures of the bucket's values: what is signed, and how it is verified.

Pure: keys are arguments and nothing is read. Three parts are signed, each preceded by its length in
bytes (8 bytes, big-endian): the context, the cluster's name, the value. So a signature is valid for
no other bytes: not for another cluster's value, and not for anything that the key may sign for
another purpose. Relays verify in the same way (rule-publisher/relay/internal/signing).
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from spillway_contracts import names

UNSIGNED, UNKNOWN_KEY, BAD_SIGNATURE = "unsigned", "unknown_key", "bad_signature"
_LENGTH_BYTES = 8


class UnverifiedError(Exception):
    """No trusted key has signed the value. `reason` is one of the three constants above."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def message(cluster: str, payload: bytes) -> bytes:
    """Returns the bytes that are signed for the payload as the cluster's value."""
    parts = (names.SIGNING_CONTEXT.encode(), cluster.encode(), payload)
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts)


def key_id(key: Ed25519PublicKey) -> str:
    """Returns the first 16 hex digits of the SHA-256 of the key (SPKI, DER)."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()[:16]


def sign(key: Ed25519PrivateKey, cluster: str, payload: bytes) -> dict[str, str]:
    """Returns the headers to send with the payload."""
    return {
        names.NATS_HEADER_SIGNATURE: base64.b64encode(key.sign(message(cluster, payload))).decode(),
        names.NATS_HEADER_KEY_ID: key_id(key.public_key()),
    }


def verify(
    trusted: Mapping[str, Ed25519PublicKey], cluster: str, payload: bytes, headers: Mapping[str, str] | None
) -> str:
    """Returns the id of the trusted key that signed the payload as the cluster's value.

    Raises UnverifiedError.
    """
    headers = headers or {}
    signature, who = (headers.get(n, "") for n in (names.NATS_HEADER_SIGNATURE, names.NATS_HEADER_KEY_ID))
    if not signature or not who:
        raise UnverifiedError(UNSIGNED, f"no {names.NATS_HEADER_SIGNATURE} with {names.NATS_HEADER_KEY_ID}")
    key = trusted.get(who)
    if key is None:
        raise UnverifiedError(UNKNOWN_KEY, f"signed by key {who[:64]!r}; trusted: {', '.join(trusted)}")
    try:
        key.verify(base64.b64decode(signature, validate=True), message(cluster, payload))
    except (InvalidSignature, binascii.Error, ValueError) as error:
        why = f"not signed by key {who} for cluster {cluster!r}"
        raise UnverifiedError(BAD_SIGNATURE, why) from error
    return who

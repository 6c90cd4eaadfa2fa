"""The signing key and the trusted public keys, from files that may be rotated while running."""

import re
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from spillway_contracts import ContractError

from spillway_publisher.bucket import signing

SIGNING_KEY, RULESET_KEYS = "SPILLWAY_SIGNING_KEY", "SPILLWAY_RULESET_KEYS"
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----\n?", re.DOTALL)


class Keys:
    """The last valid content of the key files.

    Raises ContractError, which names variable and file.
    """

    def __init__(self, signing_key: Path | None, ruleset_keys: Path | None) -> None:
        """`signing_key` None: nothing can be signed.

        The signing key's own signatures are always trusted.
        """
        self._paths = (signing_key, ruleset_keys)
        self._seen = self._read()
        self._signer, self._trusted = self._parse(self._seen)

    @property
    def id(self) -> str:
        """The id of the signing key."""
        return signing.key_id(self._signing_key().public_key())

    def sign(self, cluster: str, payload: bytes) -> dict[str, str]:
        """Returns the headers to send with the payload as the cluster's value."""
        return signing.sign(self._signing_key(), cluster, payload)

    def verify(self, cluster: str, payload: bytes, headers: Mapping[str, str] | None) -> str:
        """Returns the id of the trusted key that signed. Raises signing.UnverifiedError."""
        return signing.verify(self._trusted, cluster, payload, headers)

    def changed(self) -> bool:
        """Reads the files again and returns whether the keys have changed.

        Raises ContractError for invalid content, once, and keeps the previous keys.
        """
        unreadable: ContractError | None = None
        try:
            content = self._read()
        except ContractError as error:
            content, unreadable = (str(error).encode(),), error
        if content == self._seen:
            return False
        self._seen = content
        if unreadable:
            raise unreadable
        before = (self._signer_id(), set(self._trusted))
        self._signer, self._trusted = self._parse(content)
        return (self._signer_id(), set(self._trusted)) != before

    def _signing_key(self) -> Ed25519PrivateKey:
        assert self._signer is not None  # only `run` signs, and its settings require the key
        return self._signer

    def _signer_id(self) -> str | None:
        return None if self._signer is None else self.id

    def _read(self) -> tuple[bytes, ...]:
        content = []
        for variable, path in zip((SIGNING_KEY, RULESET_KEYS), self._paths, strict=True):
            try:
                content.append(b"" if path is None else path.read_bytes())
            except OSError as error:
                raise ContractError(f"{variable}: {path}: cannot be read: {error.strerror}") from error
        return tuple(content)

    def _parse(
        self, content: tuple[bytes, ...]
    ) -> tuple[Ed25519PrivateKey | None, dict[str, Ed25519PublicKey]]:
        signing_key, ruleset_keys = self._paths
        signer = None if signing_key is None else private_key(signing_key, content[0])
        trusted = [] if ruleset_keys is None else public_keys(ruleset_keys, content[1])
        if signer is not None:
            trusted.append(signer.public_key())
        return signer, {signing.key_id(key): key for key in trusted}


def private_key(path: Path, pem: bytes) -> Ed25519PrivateKey:
    """Parses the signing key. Raises ContractError when it is not an Ed25519 private key."""
    wrong = f"{SIGNING_KEY}: {path}: must be one Ed25519 private key (PKCS#8, PEM, not encrypted)"
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ContractError(wrong) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ContractError(wrong)
    return key


def public_keys(path: Path, pem: bytes) -> list[Ed25519PublicKey]:
    """Returns every key of the file.

    Raises ContractError for an invalid block or when there is no key.
    """
    found = []
    for number, block in enumerate(_BLOCK.finditer(pem), start=1):
        try:
            key = load_pem_public_key(block[0]) if block[1] == b"PUBLIC KEY" else None
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(key, Ed25519PublicKey):
            raise ContractError(
                f"{RULESET_KEYS}: {path}: block {number}: must be an Ed25519 PUBLIC KEY (SPKI, PEM)"
            )
        found.append(key)
    if (begun := pem.count(b"-----BEGIN")) != len(found) and found:
        raise ContractError(f"{RULESET_KEYS}: {path}: {begun} blocks begin, {len(found)} are whole")
    if not found:
        raise ContractError(f"{RULESET_KEYS}: {path}: no PUBLIC KEY block in it; at least one is needed")
    return found

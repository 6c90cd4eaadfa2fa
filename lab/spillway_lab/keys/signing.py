"""The key that a run's publisher signs rulesets with, and the public keys for its relays."""

import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from spillway_lab.scenario.errors import LabError

OWNER = "publisher"  # folder in the keystore that only the publisher reads
KEY, PUBLIC_KEYS = "signing.key", "ruleset-keys.pem"


def issue(folder: Path, public_keys: Path) -> None:
    """Creates the signing key unless it exists, and writes its public half.

    The private key in `folder` is readable only by its owner. The public half is written to
    `public_keys`, beside the rendered files. Raises LabError when the files cannot be written.
    """
    path = folder / KEY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        public_keys.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            key = Ed25519PrivateKey.generate()
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(pem)
        public = load_pem_private_key(path.read_bytes(), password=None).public_key()
        unfinished = public_keys.with_name(public_keys.name + ".new")
        unfinished.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        unfinished.replace(public_keys)
    except (OSError, ValueError) as error:
        raise LabError(f"{path}: the key of rulesets cannot be issued: {error}") from error

"""The run's own signing key."""

import stat

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from spillway_lab.keys import signing
from spillway_lab.scenario.errors import LabError


def test_a_run_has_a_key_of_its_own(tmp_path):
    """A key is readable only by its owner and differs between runs.

    A repeated issue keeps the key, and the public half belongs to it.
    """
    made = []
    for run in (tmp_path / "one", tmp_path / "two", tmp_path / "two"):
        public, private = run / signing.PUBLIC_KEYS, run / "tls/publisher" / signing.KEY
        signing.issue(private.parent, public)
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
        key = load_pem_private_key(private.read_bytes(), password=None)
        assert load_pem_public_key(public.read_bytes()) == key.public_key()
        made.append(public.read_bytes())
    assert made[0] != made[1] == made[2]


def test_a_broken_key_is_said(tmp_path):
    """A broken key is not replaced, because relays may still trust it."""
    (tmp_path / signing.KEY).write_text("rubbish")
    with pytest.raises(LabError, match=r"signing\.key: the key of rulesets cannot be issued"):
        signing.issue(tmp_path, tmp_path / signing.PUBLIC_KEYS)

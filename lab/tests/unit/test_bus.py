"""NATS's users match the clusters."""

from pathlib import Path

import pytest
from spillway_lab.render import bus, templates
from spillway_lab.scenario.errors import InvalidInput

TEXTS = templates.read(Path(__file__).resolve().parents[3] / "infra")


def test_each_cluster_has_a_user_of_its_own() -> None:
    """Each cluster has a file named after its user. It names no other cluster and is included."""
    files = bus.configuration(["one", "two-b"], TEXTS)
    for cluster, other, variable in (
        ("one", "two-b", "NATS_RELAY_ONE_PASSWORD"),
        ("two-b", "one", "NATS_RELAY_TWO_B_PASSWORD"),
    ):
        text = files[f"nats/users/relay-{cluster}.conf"]
        assert f'user: "relay-{cluster}", password: ${variable}\n' in text
        assert f'"$KV.spillway_rulesets.{cluster}"' in text
        assert f".{other}" not in text
        assert f"relay-{other}" not in text
        assert "@" not in text
        assert f"{{ include users/relay-{cluster}.conf }}" in files["nats/users.conf"]


def test_every_included_file_is_there() -> None:
    """users.conf includes exactly the files in the folder beside it."""
    files = bus.configuration(["one"], TEXTS)
    included = {
        f"nats/{line.split()[2]}" for line in files["nats/users.conf"].splitlines() if "include" in line
    }
    assert included == {name for name in files if name.startswith("nats/users/")}


def test_clusters_whose_passwords_would_be_one_are_refused() -> None:
    """Environment variables cannot express hyphens, and their names are in upper case."""
    with pytest.raises(InvalidInput, match=r"NATS_RELAY_A_B_PASSWORD would be one password"):
        bus.users(["a-b", "A_b"])

"""Users of Redis and ClickHouse: those that infra/ declares, each with its own password."""

from pathlib import Path

import yaml
from spillway_lab.keys import accounts

INFRA = Path(__file__).resolve().parents[3] / "infra"


def test_every_declared_user_has_a_password_of_its_own():
    """Every user and administrator has a password variable, and no two share one."""
    variables = accounts.variables(INFRA)
    assert len(variables) == len(set(variables))
    assert {
        "REDIS_PASSWORD",
        "CLICKHOUSE_PASSWORD",
        "REDIS_PAPA_PASSWORD",
        "CLICKHOUSE_MIGRATE_PASSWORD",
    } <= set(variables)
    assert len(variables) == 2 + sum(map(len, accounts.users(INFRA).values()))


def test_clickhouse_is_given_its_users_passwords_and_no_others():
    """The file for the local server has one line per role and none for the administrator."""
    environment = {name: f"of {name}" for name in accounts.variables(INFRA)}
    found = yaml.safe_load(accounts.clickhouse_users(INFRA, environment))
    roles = yaml.safe_load((INFRA / "clickhouse/grants.yaml").read_text())["roles"]
    assert found == {role: f"of CLICKHOUSE_{role.upper()}_PASSWORD" for role in roles}

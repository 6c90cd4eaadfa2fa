"""Users of Redis and ClickHouse, and the variables that hold their passwords.

infra/ declares the same users for every deployment.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

REDIS, CLICKHOUSE = "redis", "clickhouse"
ADMINISTRATORS = {REDIS: "default", CLICKHOUSE: "spillway"}


def users(infra: Path) -> dict[str, list[str]]:
    """Returns server -> its users, one per role, without the administrator."""
    acl = (infra / "redis/users.acl").read_text()
    grants = yaml.safe_load((infra / "clickhouse/grants.yaml").read_text())
    return {REDIS: re.findall(r"^user (\w+) ", acl, re.MULTILINE), CLICKHOUSE: list(grants["roles"])}


def password_variable(server: str, user: str) -> str:
    """Returns the environment variable that holds a user's password.

    The administrator's variable contains only the server's name.
    """
    parts = [server] if user == ADMINISTRATORS[server] else [server, user]
    return "_".join([*parts, "password"]).upper()


def variables(infra: Path) -> list[str]:
    """Returns the password variables of all users, including administrators."""
    return [
        password_variable(server, user)
        for server, roles in users(infra).items()
        for user in (ADMINISTRATORS[server], *roles)
    ]


def clickhouse_users(infra: Path, environment: Mapping[str, str]) -> str:
    """Returns the content of the file in SPILLWAY_CLICKHOUSE_USERS: passwords by user."""
    roles = users(infra)[CLICKHOUSE]
    return yaml.safe_dump({user: environment[password_variable(CLICKHOUSE, user)] for user in roles})

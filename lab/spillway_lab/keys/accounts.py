"""Users of Redis and ClickHouse, as infra/ declares them for every deployment, and where their passwords are."""

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

REDIS, CLICKHOUSE = "redis", "clickhouse"
ADMINISTRATORS = {REDIS: "default", CLICKHOUSE: "spillway"}


def users(infra: Path) -> dict[str, list[str]]:
    """Server -> its users, one per role, without the administrator."""
    acl = (infra / "redis/users.acl").read_text()
    grants = yaml.safe_load((infra / "clickhouse/grants.yaml").read_text())
    return {REDIS: re.findall(r"^user (\w+) ", acl, re.MULTILINE), CLICKHOUSE: list(grants["roles"])}


def password_variable(server: str, user: str) -> str:
    """The environment variable that has a user's password; the administrator's names the server alone."""
    parts = [server] if user == ADMINISTRATORS[server] else [server, user]
    return "_".join([*parts, "password"]).upper()


def variables(infra: Path) -> list[str]:
    """Of all users, administrators included."""
    return [
        password_variable(server, user)
        for server, roles in users(infra).items()
        for user in (ADMINISTRATORS[server], *roles)
    ]


def clickhouse_users(infra: Path, environment: Mapping[str, str]) -> str:
    """The file of SPILLWAY_CLICKHOUSE_USERS: passwords by user."""
    roles = users(infra)[CLICKHOUSE]
    return yaml.safe_dump({user: environment[password_variable(CLICKHOUSE, user)] for user in roles})

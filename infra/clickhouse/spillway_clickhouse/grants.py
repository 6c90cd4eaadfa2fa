"""Roles and what they may do: grants.yaml, for the embedded engine and as SQL for a server.

    python -m spillway_clickhouse.grants --file infra/clickhouse/grants.yaml [--users]

prints statements for a server's operator. They make no user: CREATE USER streams IDENTIFIED ...
DEFAULT ROLE streams. With --users it prints a server's configuration file instead (users.d), of a
user per role: infra/clickhouse/users.xml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import click
import yaml
from spillway_runtime import command_line, exit_codes

ADMIN = "spillway_admin"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BEGIN_USERS = """<!-- Made of grants.yaml by spillway_clickhouse.grants, option users. One user per role, for users.d of a
     ClickHouse server; passwords come from the server's environment, where all of them must be set. -->
"""
_PRIVILEGE = re.compile(r"[A-Z]+( [A-Z]+)*")
_KEYS = {"owns", "select", "insert", "settings"}


class GrantsError(Exception):
    """The grants file is invalid. The message names the key."""


@dataclass(frozen=True)
class Role:
    """A role with its rights and settings.

    `rights`: such as 'SELECT ON db.table', without GRANT and TO. `settings`: in the order in which
    to set them.
    """

    name: str
    rights: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()


def read(path: Path) -> dict[str, Role]:
    """Returns the roles by name. Raises GrantsError, which names the wrong key."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise GrantsError(f"{path}: cannot be read: {error}") from None
    if not isinstance(document, dict) or set(document) != {"database", "roles"}:
        raise GrantsError(f"{path}: must have the keys database and roles")
    try:
        database = _name(document["database"], "database")
        return {name: _role(database, name, rights) for name, rights in document["roles"].items()}
    except GrantsError as error:
        raise GrantsError(f"{path}: {error}") from None


def _role(database: str, name: str, rights: dict) -> Role:
    _name(name, "roles")
    if unknown := set(rights) - _KEYS:
        raise GrantsError(f"roles.{name}.{min(unknown)}: must be one of {', '.join(sorted(_KEYS))}")
    found = []
    if owned := rights.get("owns"):
        if wrong := [privilege for privilege in owned if not _PRIVILEGE.fullmatch(privilege)]:
            raise GrantsError(f"roles.{name}.owns: {wrong[0]!r} must be a privilege in capitals")
        found.append(f"{', '.join(owned)} ON {database}.*")
    for right in ("select", "insert"):
        for table in rights.get(right, ()):
            where = "*" if table == "*" else _name(table, f"roles.{name}.{right}")
            found.append(f"{right.upper()} ON {database}.{where}")
    settings = rights.get("settings", {})
    return Role(
        name,
        tuple(found),
        tuple((_name(key, f"roles.{name}.settings"), str(int(value))) for key, value in settings.items()),
    )


def _name(value: object, key: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise GrantsError(f"{key}: {value!r} must be a name of letters, digits and '_'")
    return value


def users_xml(roles: Iterable[Role]) -> str:
    """Returns the engine's users file.

    Its only user may do nothing but take a role: ADMIN, or one of these.
    """
    roles = list(roles)
    made = [Role(ADMIN, ("ALL ON *.*",)), *roles]
    queries = {
        role.name: "".join(f"<query>{escape('GRANT ' + right)}</query>" for right in role.rights)
        for role in made
    }
    return (
        "<clickhouse><profiles><default/></profiles><quotas><default/></quotas><roles>"
        + "".join(f"<{name}><grants>{text}</grants></{name}>" for name, text in queries.items())
        + "</roles><users><default><no_password/><networks><ip>::/0</ip></networks><profile>default</profile>"
        + f"<quota>default</quota><grants><query>GRANT {', '.join(queries)}</query></grants></default></users>"
        + "</clickhouse>\n"
    )


def password_variable(user: str) -> str:
    """Returns the environment variable that contains a user's password."""
    return f"CLICKHOUSE_{user.upper()}_PASSWORD"


def server_users_xml(roles: Iterable[Role]) -> str:
    """Returns a server's users file: one user per role, with the role's name and rights.

    A role's settings become the user's profile.
    """
    lines, profiles = [], []
    for role in roles:
        if role.settings:
            settings = "".join(f"<{name}>{value}</{name}>" for name, value in role.settings)
            profiles.append(f"    <{role.name}>{settings}</{role.name}>")
        lines += [
            f"    <{role.name}>",
            f'      <password from_env="{password_variable(role.name)}"/>',
            "      <networks><ip>::/0</ip></networks>",
            f"      <profile>{role.name if role.settings else 'default'}</profile>",
            "      <quota>default</quota>",
            "      <grants>",
            *(f"        <query>{escape('GRANT ' + right)}</query>" for right in role.rights),
            "      </grants>",
            f"    </{role.name}>",
        ]
    made = [
        "<clickhouse>",
        "  <profiles>",
        *profiles,
        "  </profiles>",
        "  <users>",
        *lines,
        "  </users>",
        "</clickhouse>",
    ]
    return _BEGIN_USERS + "\n".join(made) + "\n"


def statements(roles: Iterable[Role]) -> list[str]:
    """Returns SQL that gives a server's roles exactly these rights and settings."""
    made = []
    for role in roles:
        made += [f"CREATE ROLE IF NOT EXISTS {role.name}", f"REVOKE ALL ON *.* FROM {role.name}"]
        made += [f"GRANT {right} TO {role.name}" for right in role.rights]
        if role.settings:
            fixed = ", ".join(f"{name} = {value} READONLY" for name, value in role.settings)
            made += [
                f"CREATE SETTINGS PROFILE OR REPLACE {role.name} SETTINGS {fixed}",
                f"ALTER ROLE {role.name} SETTINGS PROFILE '{role.name}'",
            ]
    return made


@click.command(cls=command_line.Command)
@click.option("--file", type=command_line.PATH, required=True, help="grants.yaml.")
@click.option("--users", is_flag=True, help="A server's configuration file (users.d) instead of SQL.")
def main(file: Path, users: bool) -> int:
    """Prints the roles of grants.yaml as statements for a server's operator."""
    try:
        roles = read(file).values()
    except GrantsError as error:
        print(error, file=sys.stderr)
        return exit_codes.FAILED
    if users:
        print(server_users_xml(roles), end="")
    else:
        print("".join(statement + ";\n" for statement in statements(roles)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main, "python -m spillway_clickhouse.grants"))

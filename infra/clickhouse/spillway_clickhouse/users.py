"""Users of a server, with the rights of grants.yaml: what differs, and the statements that change
it.

    SPILLWAY_CLICKHOUSE_URL=clickhouses://user:password@host:9440 \\
    python -m spillway_clickhouse.users --file infra/clickhouse/grants.yaml --sums FOLDER \\
        [--apply] [--json]

A user per role, of the role's name, with its rights and no others. Without --apply nothing is
changed. FOLDER has a file per user with the SHA-256 sum of its password, as the Secret
spillway-clickhouse-users has it. Users that exist keep their password; --set-passwords gives them
the sums, too. Other users of the server are left alone.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from clickhouse_driver import Client
from clickhouse_driver.errors import Error
from spillway_runtime import command_line, exit_codes
from spillway_runtime.settings import load

from spillway_clickhouse.config import UsersConfig
from spillway_clickhouse.grants import GrantsError, Role, read

Ask = Callable[[str], list[tuple[Any, ...]]]  # statement -> rows
_SUM = re.compile(r"[0-9a-f]{64}")
_GRANT = re.compile(r"GRANT (.+) ON (\S+)")


@dataclass(frozen=True)
class Change:
    """A change to one user.

    `what` is the text for people and contains no password sum; `statement` contains it.
    """

    user: str
    what: str
    statement: str


def sums(folder: Path, roles: Iterable[str]) -> dict[str, str]:
    """Returns the SHA-256 sums by user.

    Raises GrantsError, which names a file that is missing or has no sum.
    """
    found = {}
    for role in roles:
        file = folder / role
        try:
            text = file.read_text().strip().lower()
        except (OSError, UnicodeDecodeError) as error:
            raise GrantsError(f"--sums: {file}: cannot be read: {type(error).__name__}") from None
        if not _SUM.fullmatch(text):
            raise GrantsError(f"--sums: {file}: must be the SHA-256 sum of a password, 64 hexadecimal digits")
        found[role] = text
    return found


def plan(ask: Ask, roles: Iterable[Role], passwords: dict[str, str], set_passwords: bool) -> list[Change]:
    """Returns in order the changes that the server needs for these users."""
    existing = {name for (name,) in ask("SELECT name FROM system.users")}
    found = []
    for role in roles:
        name, by = role.name, f"IDENTIFIED WITH sha256_hash BY '{passwords[role.name]}'"
        if name not in existing:
            found.append(Change(name, "create user", f"CREATE USER {name} {by}"))
        elif set_passwords:
            found.append(Change(name, "set password", f"ALTER USER {name} {by}"))
        privileges, granted_roles = _rights(ask, name) if name in existing else (set(), set())
        wanted = {privilege for right in role.rights for privilege in _single(right)}
        found += [
            Change(name, f"revoke {granted}", f"REVOKE {granted} FROM {name}")
            for granted in sorted(granted_roles)
        ]
        if privileges != wanted:
            # In one statement, so that no right is missing in between.
            statement = f"GRANT {', '.join(role.rights)} TO {name} WITH REPLACE OPTION"
            found.append(Change(name, _difference(privileges, wanted), statement))
        if role.settings and (name not in existing or _settings(ask, name) != set(role.settings)):
            text = ", ".join(f"{setting} = {value} READONLY" for setting, value in role.settings)
            found.append(Change(name, f"set {text}", f"ALTER USER {name} SETTINGS {text}"))
    return found


def _difference(has: set[str], wanted: set[str]) -> str:
    lines = [("grant", sorted(wanted - has)), ("revoke", sorted(has - wanted))]
    return "; ".join(f"{verb} {', '.join(rights)}" for verb, rights in lines if rights)


def _rights(ask: Ask, user: str) -> tuple[set[str], set[str]]:
    """Returns the privileges of a user, each as 'SELECT ON db.table', and its roles."""
    privileges, granted_roles = set(), set()
    for (line,) in ask(f"SHOW GRANTS FOR {user}"):
        text = line.partition(" TO ")[0]
        if match := _GRANT.fullmatch(text):
            option = " WITH GRANT OPTION" if line.endswith(" WITH GRANT OPTION") else ""
            privileges |= {f"{privilege} ON {match[2]}{option}" for privilege in _words(match[1])}
        elif text.startswith("REVOKE "):  # a broader privilege, revoked in part
            privileges.add(text)
        else:
            granted_roles.add(text.removeprefix("GRANT "))
    return privileges, granted_roles


def _single(right: str) -> set[str]:
    words, _, where = right.partition(" ON ")
    return {f"{privilege} ON {where}" for privilege in _words(words)}


def _words(text: str) -> list[str]:
    """Splits at commas outside parentheses: 'SELECT(a, b), INSERT' -> two words."""
    return [word.strip() for word in re.split(r",(?![^(]*\))", text)]


def _settings(ask: Ask, user: str) -> set[tuple[str, str]]:
    text = (
        "SELECT setting_name, value FROM system.settings_profile_elements "
        f"WHERE user_name = '{user}' AND setting_name IS NOT NULL"
    )
    return {(name, value) for name, value in ask(text)}


@click.command(cls=command_line.Command)
@click.option("--file", type=command_line.PATH, required=True, help="grants.yaml.")
@click.option(
    "--sums",
    "folder",
    type=command_line.PATH,
    required=True,
    help="Folder: a file per user, the SHA-256 of its password.",
)
@click.option("--apply", is_flag=True, help="Change the server; otherwise the changes are only printed.")
@click.option("--set-passwords", is_flag=True, help="Of users that exist, too.")
@click.option("--json", "as_json", is_flag=True, help="A list of {user, what} instead of lines.")
def main(file: Path, folder: Path, apply: bool, set_passwords: bool, as_json: bool) -> int:
    """Gives a server a user per role of grants.yaml, with its rights and no others.

    SPILLWAY_CLICKHOUSE_URL names the server. Users that exist keep their password, and other users
    are left alone.
    """
    try:
        roles = list(read(file).values())
        passwords = sums(folder, [role.name for role in roles])
    except GrantsError as error:
        print(error, file=sys.stderr)
        return exit_codes.USAGE
    config = load(UsersConfig)
    try:
        with Client.from_url(config.clickhouse_address) as client:
            changes = plan(client.execute, roles, passwords, set_passwords)
            if apply:
                for change in changes:
                    client.execute(change.statement)
    except (Error, OSError) as error:
        print(f"SPILLWAY_CLICKHOUSE_URL: {_without_sums(str(error))}", file=sys.stderr)
        return exit_codes.FAILED
    if as_json:
        print(json.dumps([{"user": change.user, "what": change.what} for change in changes]))
    else:
        print("".join(f"{change.user}: {change.what}\n" for change in changes), end="")
    done = "changed" if apply else "to change; --apply does it"
    print(f"{len(changes)} {done}" if changes else "nothing to change", file=sys.stderr)
    return 0


def _without_sums(text: str) -> str:
    """Removes password sums, because a server repeats the statement that it refuses."""
    return re.sub(r"[0-9a-f]{64}", "...", text.partition("Stack trace")[0].strip())


if __name__ == "__main__":
    sys.exit(command_line.run(main, "python -m spillway_clickhouse.users"))

"""Tests the command that gives a server the users of grants.yaml.

The engine reads users and their rights, and parses each statement. It cannot store users, so the
tests create none.
"""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from spillway_clickhouse import grants

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[4]
GRANTS = ROOT / "infra" / "clickhouse" / "grants.yaml"
ROLES = grants.read(GRANTS)
_OWN = """<profiles><default/>{profile}</profiles><quotas><default/></quotas><users><default><no_password/>
  <networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>
  <access_management>1</access_management></default>"""
_RUN = """
import json, sys
from pathlib import Path
from spillway_clickhouse import engine, grants, users
folder, file = sys.argv[1:]
connection = engine._load_extension().connect(f"{folder}/data?config-file={folder}/config.xml")
def ask(text):
    rows = connection.query(text, "JSONCompactEachRow").bytes().decode().splitlines()
    return [tuple(json.loads(row)) for row in rows]
roles = list(grants.read(Path(file)).values())
found = users.plan(ask, roles, {role.name: "a" * 64 for role in roles}, False)
for change in found:
    quoted = change.statement.replace("'", "''")
    ask(f"SELECT formatQuery('{quoted}')")  # refused unless it parses
print(json.dumps([[change.user, change.what, change.statement] for change in found]), flush=True)
"""


def planned(folder: Path, users: str) -> list[list[str]]:
    """Returns (user, what, statement) of each change that a server with these users needs.

    Each statement parses.
    """
    (folder / "users.xml").write_text(users)
    config = f"<clickhouse><users_config>{folder}/users.xml</users_config></clickhouse>"
    (folder / "config.xml").write_text(config)
    environment = os.environ | {grants.password_variable(role): "p" for role in ROLES}
    command = [sys.executable, "-c", _RUN, str(folder), str(GRANTS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def server_of(roles: str) -> str:
    """Returns a server's users.xml with an administrator and these users."""
    start, _, rest = roles.partition("<profiles>")
    profiles, _, users = rest.partition("</profiles>")
    return f"{start}{_OWN.format(profile=profiles)}{users.partition('<users>')[2]}"


OURS = server_of(grants.server_users_xml(ROLES.values()))


def test_a_new_server_gets_every_user_with_its_rights(tmp_path: Path):
    """A new server gets one user per role, and the analyst's bounds.

    One statement gives a user all its rights and replaces all others.
    """
    nobody = server_of("<clickhouse><profiles></profiles><users></users></clickhouse>")
    found = planned(tmp_path, nobody)
    assert [user for user, what, _ in found if what == "create user"] == list(ROLES)
    rights = {user: statement for user, what, statement in found if what.startswith("grant ")}
    assert rights == {
        name: f"GRANT {', '.join(role.rights)} TO {name} WITH REPLACE OPTION" for name, role in ROLES.items()
    }
    assert [user for user, what, _ in found if what.startswith("set ")] == ["analyst"]
    assert all("a" * 64 not in what for _, what, _ in found)


def test_a_server_with_the_files_rights_is_left_alone(tmp_path: Path):
    """The engine shows rights in its own words and order, but they compare by meaning.

    The analyst's bounds are in a profile of that server instead of the user's own settings, so they
    are the only change.
    """
    assert [(user, what[:4]) for user, what, _ in planned(tmp_path, OURS)] == [("analyst", "set ")]


def test_what_a_user_lacks_or_has_too_much_is_said_and_replaced(tmp_path: Path):
    """Single missing or excessive rights are found among those that the engine shows together.

    One of them has GRANT OPTION.
    """
    changed = OURS.replace("<query>GRANT SELECT ON spillway.curves</query>", "", 1)
    broad = "<query>GRANT INSERT ON spillway.papa_steps</query>"
    assert broad in changed and changed != OURS
    changed = changed.replace(
        broad, broad + "<query>GRANT DROP TABLE ON spillway.* WITH GRANT OPTION</query>"
    )
    found = {
        user: (what, statement) for user, what, statement in planned(tmp_path, changed) if user != "analyst"
    }
    assert set(found) == {"streams", "optimizer"}
    assert found["streams"][0] == "grant SELECT ON spillway.curves"
    assert found["optimizer"][0] == "revoke DROP TABLE ON spillway.* WITH GRANT OPTION"
    assert all(statement.endswith(" WITH REPLACE OPTION") for _, statement in found.values())


def test_what_is_missing_among_the_sums_is_named(tmp_path: Path):
    """A wrong or missing sum is named before the command connects to the server."""
    for name in ROLES:
        (tmp_path / name).write_text(secrets.token_hex(32) + "\n")
    (tmp_path / "analyst").write_text("top-secret")
    command = [
        sys.executable,
        "-m",
        "spillway_clickhouse.users",
        "--file",
        str(GRANTS),
        "--sums",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 64
    assert (
        f"--sums: {tmp_path}/analyst: must be the SHA-256 sum" in done.stderr
        and "top-secret" not in done.stderr
    )
    (tmp_path / "analyst").unlink()
    done = subprocess.run(
        command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 64 and f"{tmp_path}/analyst: cannot be read" in done.stderr

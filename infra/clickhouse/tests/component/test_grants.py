"""Tests every role of grants.yaml on the real engine: what it may do works, the rest is refused."""

import json
import os
import secrets
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ServerException
from spillway_clickhouse import grants

pytestmark = [pytest.mark.component, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[4]
GRANTS = ROOT / "infra" / "clickhouse" / "grants.yaml"
ROLES = grants.read(GRANTS)
TABLES = {
    line.split()[5]
    for file in (ROOT / "contracts" / "clickhouse").glob("*.sql")
    for line in file.read_text().splitlines()
    if line.startswith("CREATE TABLE IF NOT EXISTS ")
}
DENIED, READONLY = 497, 164


@pytest.fixture(scope="module")
def server(tmp_path_factory, make_server):
    """A server with all roles as users, migrated by the user `migrate`."""
    folder = tmp_path_factory.mktemp("grants")
    process = make_server(folder)
    passwords = {role: "p" + secrets.token_hex(8) for role in ROLES}
    users = folder / "users.yaml"
    users.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
    users.write_text("".join(f"{user}: {password}\n" for user, password in passwords.items()))
    process.environment |= {
        "SPILLWAY_CLICKHOUSE_GRANTS": str(GRANTS),
        "SPILLWAY_CLICKHOUSE_USERS": str(users),
    }
    process.passwords = passwords
    process.start()
    url = f"clickhouse://migrate:{passwords['migrate']}@127.0.0.1:{process.port}/spillway"
    done = subprocess.run(
        [sys.executable, "-m", "spillway_clickhouse.migrate", "--ddl", str(ROOT / "contracts" / "clickhouse")],
        env=os.environ | {"SPILLWAY_CLICKHOUSE_URL": url}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    yield process
    process.end()


@pytest.fixture
def connect(server):
    """Returns a function that connects as a role. Closes the connections at the end."""
    opened = []

    def _connect(role: str) -> Client:
        client = Client("127.0.0.1", server.port, "spillway", role, server.passwords[role])
        opened.append(client)
        return client

    yield _connect
    for client in opened:
        client.disconnect()


def code(client: Client, text: str, *rows) -> int:
    """Runs a statement. Returns 0, or the error code with which the server refuses it."""
    try:
        client.execute(text, *rows)
    except ServerException as error:
        return error.code
    return 0


def allowed(role: str, right: str) -> set[str]:
    """Returns the tables for which grants.yaml gives the role this right."""
    found = {granted.rpartition(".")[2] for granted in ROLES[role].rights if granted.startswith(right)}
    return TABLES if "*" in found else found


@pytest.mark.parametrize("role", ["streams", "optimizer", "publisher", "analyst"])
def test_a_role_reads_and_writes_its_tables_and_no_other(connect, role):
    """Every role tries to read and to write every table.

    It succeeds exactly where grants.yaml allows it.
    """
    client = connect(role)
    reads = {table for table in TABLES if code(client, f"SELECT * FROM {table} LIMIT 1") == 0}
    writes = {
        table for table in TABLES if code(client, f"INSERT INTO {table} SELECT * FROM {table} WHERE 0") == 0
    }
    assert reads == allowed(role, "SELECT")
    assert writes <= allowed(role, "INSERT") & allowed(role, "SELECT")
    blocked = {table for table in TABLES if code(client, f"INSERT INTO {table} VALUES", []) != 0}
    assert TABLES - blocked == allowed(role, "INSERT")


@pytest.mark.parametrize("role", ["streams", "optimizer", "publisher", "analyst"])
@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE rules", "TRUNCATE TABLE calls", "ALTER TABLE calls DELETE WHERE 1",
        "ALTER TABLE rules ADD COLUMN a Int8",
        "CREATE TABLE mine (a Int8) ENGINE = Memory", "CREATE DATABASE mine", "DROP DATABASE spillway",
        "CREATE USER mine", "GRANT ALL ON *.* TO analyst", "SYSTEM SHUTDOWN", "OPTIMIZE TABLE calls",
        "SELECT * FROM file('/etc/passwd', 'LineAsString')", "SELECT * FROM url('http://127.0.0.1:1', 'LineAsString')",
        "SELECT * FROM remote('127.0.0.1:1', 'spillway', 'rules')", "KILL QUERY WHERE 1", "/* */ KILL QUERY WHERE 1",
        "CREATE VIEW mine AS SELECT * FROM rules", "RENAME TABLE rules TO mine", "SET ROLE spillway_admin",
        "SET DEFAULT ROLE spillway_admin TO default", "EXECUTE AS default", "SELECT * FROM schema_migrations_of_nobody",
    ],
)  # fmt: skip
def test_no_role_of_a_program_owns_anything(connect, role, text):
    """No program's role may change definitions, users, the server, its files or its network.

    Only `migrate` and the operator may.
    """
    assert code(connect(role), text) != 0


def test_a_role_taken_behind_the_servers_back_lasts_no_statement(connect):
    """A client may find a way to change its role in the engine.

    Even then, its next statement runs in the user's own role again.
    """
    client = connect("publisher")
    for spelling in (
        "SET ROLE spillway_admin",
        "SET/**/ROLE streams",
        "-- x\nSET ROLE streams",
        "# x\nSET ROLE streams",
    ):
        code(client, spelling)
        assert code(client, "SELECT * FROM calls LIMIT 1") == DENIED
        assert client.execute("SELECT currentRoles()") == [(["publisher"],)]


def test_an_analyst_changes_no_setting_and_meets_its_bounds(connect):
    """Bounds on time, rows and memory hold, because the bound user cannot change them."""
    client = connect("analyst")
    for text in ("SET max_execution_time = 0", "SET readonly = 0", "SELECT 1 SETTINGS max_result_rows = 0"):
        assert code(client, text) == READONLY
    with pytest.raises(ServerException) as refused:
        client.execute("SELECT 1", settings={"readonly": 0})
    assert refused.value.code == READONLY
    bound = {"max_execution_time": ROLES["analyst"].settings[0][1]}
    assert client.execute("SELECT 1", settings=bound) == client.execute("SELECT 1") == [(1,)]
    assert code(client, "SELECT count() FROM calls") == 0
    assert code(client, "SELECT number FROM numbers(1000001)") != 0
    wanted = dict(ROLES["analyst"].settings)
    effective = dict(client.execute("SELECT name, value FROM system.settings WHERE changed"))
    assert {name: effective[name] for name in wanted} == wanted


def test_migrate_owns_its_database_alone(connect):
    """`migrate` creates and drops tables in its database only, and creates no users."""
    client = connect("migrate")
    assert code(client, "CREATE TABLE mine (a Int8) ENGINE = Memory") == 0
    assert code(client, "DROP TABLE mine") == 0
    for text in (
        "CREATE DATABASE mine",
        "CREATE USER mine",
        "SYSTEM SHUTDOWN",
        "GRANT ALL ON *.* TO analyst",
        "DROP DATABASE spillway",
    ):
        assert code(client, text) != 0
    for text in ("CREATE USER spillway", "ALTER USER spillway HOST ANY"):
        assert code(client, text) == DENIED, "a user with the database's name"


def test_a_wrong_password_or_another_roles_is_refused(server):
    for user, password in (
        ("streams", "wrong"), ("streams", server.passwords["publisher"]), ("nobody", server.passwords["streams"]),
        ("default", ""), (grants.ADMIN, ""),
    ):  # fmt: skip
        with pytest.raises(ServerException) as refused:
            Client("127.0.0.1", server.port, "spillway", user, password).execute("SELECT 1")
        assert refused.value.code == 516


# Parts of a server's users.xml that ours does not contain.
_SERVERS_OWN = {
    "<profiles>": "<profiles><default/>",
    "<users>": "<quotas><default/></quotas><users><default><no_password/><networks><ip>::/0</ip></networks>"
    "<profile>default</profile><quota>default</quota><access_management>1</access_management></default>",
}
_ASK = """
import json, sys
from spillway_clickhouse import engine
connection = engine._load_extension().connect(f"{sys.argv[1]}/data?config-file={sys.argv[1]}/config.xml")
lines = lambda text: connection.query(text, "TabSeparatedRaw").bytes().decode().splitlines()
print(json.dumps([
    {user: lines(f"SHOW GRANTS FOR {user}") for user in sys.argv[2:]},
    lines("SELECT name || ' ' || toString(auth_type) FROM system.users"),
    lines("SELECT setting_name || '=' || value FROM system.settings_profile_elements WHERE profile_name = 'analyst'"),
]))
"""


def test_a_servers_users_are_made_of_the_same_file(tmp_path):
    """infra/clickhouse/users.xml equals the file that grants.yaml yields.

    From it, the engine reads users with passwords and exactly these rights and settings.
    """
    made = (ROOT / "infra" / "clickhouse" / "users.xml").read_text()
    assert made == grants.server_users_xml(ROLES.values())
    text = made
    for mark, more in _SERVERS_OWN.items():
        text = text.replace(mark, more)
    (tmp_path / "users.xml").write_text(text)
    config = f"<clickhouse><users_config>{tmp_path}/users.xml</users_config></clickhouse>"
    (tmp_path / "config.xml").write_text(config)
    environment = os.environ | {grants.password_variable(role): "p" + secrets.token_hex(8) for role in ROLES}
    ask = [sys.executable, "-c", _ASK, str(tmp_path), *ROLES]
    done = subprocess.run(ask, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rights, users, settings = json.loads(done.stdout)
    assert set(users) == {"default ['no_password']"} | {f"{role} ['plaintext_password']" for role in ROLES}
    assert dict(line.split("=") for line in settings) == dict(ROLES["analyst"].settings)
    for user, lines in rights.items():
        found = {
            right
            for line in lines
            for right in _single(line.removeprefix("GRANT ").removesuffix(f" TO {user}"))
        }
        assert found == {right for several in ROLES[user].rights for right in _single(several)}, user


def _single(several: str) -> set[str]:
    """Splits 'SELECT, INSERT ON t' into single rights."""
    words, _, where = several.partition(" ON ")
    return {f"{word} ON {where}" for word in words.split(", ")}


def test_the_sql_for_a_server_is_valid_and_says_the_same(server, connect):
    """Each statement for a real server parses there.

    Together they contain every right of the file.
    """
    made = grants.statements(ROLES.values())
    with Client.from_url(server.url()) as client:
        for statement in made:
            try:
                # this engine cannot store users: it parses the statement and refuses it
                client.execute(statement)
            except ServerException as error:
                assert error.code != 62, statement  # SYNTAX_ERROR
    for role in ROLES.values():
        assert [s for s in made if s.endswith(f" TO {role.name}")] == [
            f"GRANT {r} TO {role.name}" for r in role.rights
        ]

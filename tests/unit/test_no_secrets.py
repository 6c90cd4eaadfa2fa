"""tools/no_secrets.py finds planted secrets and ignores text that only names a secret.

Planted texts are assembled in code, because the tool checks this file too.
"""

import secrets
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import no_secrets  # noqa: E402

KEY = "-----BEGIN " + "PRIVATE KEY-----\n" + "MC4CAQAwBQYDK2VwBCIEIA" + "\n-----END " + "PRIVATE KEY-----\n"
PLANTED = [
    ("charts/a.pem", KEY, "private key"),
    ("tests/data/a.pem", KEY, "private key"),
    ("a.py", 'KEY = "' + KEY.replace("\n", "\\n") + '"', "private key"),
    ("README.md", "the password is Change" + "Me", "placeholder"),
    ("a.go", 'const p = "hunter' + '2"', "placeholder"),
    ("a.yaml", "id: AKIA" + "ABCDEFGHIJKLMNOP", "token"),
    ("tests/a.py", "T = 'gh" + "p_" + "a" * 36 + "'", "token"),
    ("docker-compose.yml", "URL: redis://:s3cr" + "et@redis:6379", "URL"),
    ("a.tf", 'url = "clickhouse://spillway:' + 'spillway@host:9000/x"', "URL"),
    ("a.py", 'connect("nats://publisher:' + 'publisher@127.0.0.1")', "URL"),
    ("a.py", 'password = "' + 'open sesame"'.replace(" ", "-"), "literal"),
    ("a.py", 'connect(user="u", db_password="' + 'spillway")', "literal"),
    ("a.go", 'Password: "' + 'spillway",', "literal"),
    ("a.json", '{"api_key": "' + '1234567"}', "literal"),
    ("a.tf", 'secret_key = "' + 'spillway"', "literal"),
    ("values.yaml", "redis:\n  password: " + "spillway\n", "shell or a YAML"),
    ("a.sh", "export REDIS_PASSWORD=" + "spillway\n", "shell or a YAML"),
    (".env", "CLICKHOUSE_PASSWORD=" + "spillway\n", "shell or a YAML"),
    ("a.conf", "requirepass x\npassword: " + "spillway\n", "shell or a YAML"),
]  # fmt: skip
HARMLESS = """
password: ${REDIS_PASSWORD:?run infra/compose/secrets}
password: $NATS_PUBLISHER_PASSWORD
url: clickhouse://user:pass@host:9000/spillway
url: nats://relay-<cluster>:pass@host:port
url: redis://:${REDIS_PASSWORD}@redis:6379/0
password: {{ .Values.password }}
password = file.read_text()
"password": generated["redis"],
password_file: /run/secrets/kafka-password
passwordFile: ""
  secret: spillway-exclusive
password=""
token: str
"""


@pytest.mark.parametrize(("name", "text", "rule"), PLANTED)
def test_what_is_planted_is_found(tmp_path, name, text, rule):
    """Each finding names file and line and does not contain the secret's value."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("first line\n" + text)
    found = no_secrets.findings(tmp_path, [name], {})
    assert found and any(rule in finding and finding.startswith(f"{name}:") for finding in found), found
    assert all("spillway@" not in finding and "MC4C" not in finding for finding in found)
    assert int(found[0].split(":")[1]) >= 2


@pytest.mark.parametrize("name", ["a.yaml", "a.py", "a.md", "a.sh"])
def test_what_only_names_a_secret_is_none(tmp_path, name):
    (tmp_path / name).write_text(HARMLESS)
    assert no_secrets.findings(tmp_path, [name], {}) == []


def test_an_exception_excuses_its_line_and_is_told_when_it_is_over(tmp_path):
    (tmp_path / "a.py").write_text('password = "' + 'spillway"\n')
    needed, over = {("a.py", "password"): "why"}, {("a.py", "gone"): "why"}
    assert no_secrets.findings(tmp_path, ["a.py"], needed) == []
    assert any(
        "nothing needs" in finding for finding in no_secrets.findings(tmp_path, ["a.py"], needed | over)
    )


def test_the_command_looks_at_what_git_knows_of(tmp_path):
    """The command also checks files that are not committed yet, but not ignored ones.

    Its exit status is for tools/check.
    """
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("ignored/\n")
    (tmp_path / "ignored").mkdir()
    command = [sys.executable, str(ROOT / "tools" / "no_secrets.py"), str(tmp_path)]
    (tmp_path / "ignored" / "a.yaml").write_text("password: " + secrets.token_hex(8) + "\n")
    assert subprocess.run(command, check=False).returncode == 0
    value = secrets.token_hex(8)
    (tmp_path / "a.yaml").write_text("password: " + value + "\n")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "a.yaml:1:" in done.stdout and value not in done.stdout


def test_this_repository_has_none():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "no_secrets.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
